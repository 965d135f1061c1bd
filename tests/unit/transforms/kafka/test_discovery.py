"""What is remembered of the partitions that have been found."""

import pytest

from beam_spark_runner.transforms.kafka.discovery import (
    KnownPartitions,
    KnownPartitionsCoder,
    KnownPartitionsTracker,
)


def test_what_was_found_is_not_left() -> None:
    tracker = KnownPartitionsTracker(KnownPartitions(False, {}))
    assert tracker.try_claim({"a": 2, "b": 0})
    assert tracker.try_split(0) == (
        KnownPartitions(True, {"a": 2, "b": 0}, is_done=True),
        KnownPartitions(True, {"a": 2, "b": 0}),
    )
    tracker.check_done()
    assert not tracker.try_claim({"a": 3, "b": 0})
    assert tracker.try_split(0) is None


def test_a_look_is_not_cut_off() -> None:
    """The runner would split it again and again, and no partition would be found."""
    tracker = KnownPartitionsTracker(KnownPartitions(True, {"a": 2}))
    assert tracker.try_split(0) is None
    with pytest.raises(ValueError, match="without an end"):
        tracker.check_done()
    assert tracker.try_claim({"a": 2})
    _, residual = tracker.try_split(0) or pytest.fail("it can be split now")
    assert residual == KnownPartitions(True, {"a": 2})
    assert tracker.is_bounded()


def test_partitions_are_never_forgotten() -> None:
    """A topic may be missing from an answer, or have been made anew with fewer partitions."""
    tracker = KnownPartitionsTracker(KnownPartitions(True, {"a": 4, "b": 1}))
    assert tracker.try_claim({"a": 2, "c": 1})
    assert tracker.current_restriction().counts == {"a": 4, "b": 1, "c": 1}


def test_what_is_stored_is_read_by_later_versions() -> None:
    """A change of these bytes breaks checkpoints."""
    coded = b'{"counts": {"a": 2}, "has_begun": true, "is_done": false}'
    assert KnownPartitionsCoder().encode(KnownPartitions(True, {"a": 2})) == coded
    assert KnownPartitionsCoder().decode(coded) == KnownPartitions(True, {"a": 2})

"""What is remembered of the partitions that have been found."""

import contextlib
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.kafka import discovery
from beam_spark_runner.transforms.kafka.client import NoAnswerError
from beam_spark_runner.transforms.kafka.discovery import (
    DiscoverPartitions,
    KnownPartitions,
    KnownPartitionsCoder,
    KnownPartitionsTracker,
)
from beam_spark_runner.transforms.kafka.offsets import PartitionElement
from beam_spark_runner.transforms.kafka.positions import Partition, Position
from beam_spark_runner.transforms.kafka.timestamps import ProcessingTime


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
    """A topic may be missing from an answer, or have been made again with fewer partitions."""
    tracker = KnownPartitionsTracker(KnownPartitions(True, {"a": 4, "b": 1}))
    assert tracker.try_claim({"a": 2, "c": 1})
    assert tracker.current_restriction().counts == {"a": 4, "b": 1, "c": 1}


def test_what_is_stored_is_read_by_later_versions() -> None:
    """A change of these bytes breaks checkpoints."""
    coded = b'{"counts": {"a": 2}, "has_begun": true, "is_done": false}'
    assert KnownPartitionsCoder().encode(KnownPartitions(True, {"a": 2})) == coded
    assert KnownPartitionsCoder().decode(coded) == KnownPartitions(True, {"a": 2})
    coded = (
        b'{"counts": {"a": 2}, "has_begun": true, "is_done": false, "missing": {"a": [5, 9, 2]}}'
    )
    known = KnownPartitions(True, {"a": 2}, missing={"a": (5, 9, 2)})
    assert KnownPartitionsCoder().encode(known) == coded
    assert KnownPartitionsCoder().decode(coded) == known


class Looks:
    """Looks for partitions, each from what the one before has stored, five seconds later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_700_000_000.0
        self.counts: dict[str, int] = {}
        self.answers = True
        self._known = KnownPartitions(False, {})
        sought: Any = SimpleNamespace(
            config={},
            transform="Read",
            start=Position("earliest"),
            topics=SimpleNamespace(partitions=lambda *_: dict(self.counts)),
            elements=self._elements,
        )
        self._fn = DiscoverPartitions(sought, ProcessingTime(), 5.0)
        clock = SimpleNamespace(time=lambda: self.now_s, time_ns=lambda: int(self.now_s * 1e9))
        monkeypatch.setattr(discovery, "time", clock)
        monkeypatch.setattr(discovery, "inquirer", self._inquirer)

    @contextlib.contextmanager
    def _inquirer(self, *_: Any) -> Any:
        if not self.answers:
            raise NoAnswerError("nobody is there", "Read")
        yield None

    def _elements(self, _: Any, new: Iterable[Partition], *__: Any) -> list[PartitionElement]:
        return [PartitionElement(*each, 0, -1, 0) for each in new]

    def found(self, seconds: int, **counts: int) -> list[Partition]:
        """Look for so long, while topics have so many partitions; return what is new."""
        self.counts = counts
        new: list[Partition] = []
        for _ in range(0, seconds, 5):
            tracker = ThreadsafeRestrictionTracker(KnownPartitionsTracker(self._known))
            estimator = ManualWatermarkEstimator(Timestamp(0))
            for each in self._fn.process(None, RestrictionTrackerView(tracker), estimator):
                new.append(each.value[:2])
            self._known, _ = tracker.deferred_status()
            self._known = KnownPartitionsCoder().decode(KnownPartitionsCoder().encode(self._known))
            self.now_s += 5
        return new


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_a_topic_that_is_made_again_is_not_read(
    looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    assert looks.found(5, a=2, b=1, c=0) == [("a", 0), ("a", 1), ("b", 0)]
    assert looks.found(65, a=0, b=2, c=0) == [("b", 1)]
    assert looks.found(60, a=4, b=3, c=1) == [("b", 2), ("c", 0)]
    assert looks.found(60, b=3, c=1) == []
    assert looks.found(60, a=5, b=3, c=2) == [("c", 1)]
    warnings = [each for each in caplog.messages if "any more" in each]
    why = "topic a does not exist any more. If it is created again, it is not read"
    assert warnings == [f"Read: {why}"]


def test_a_topic_that_is_missing_for_moments_stays_known(looks: Looks) -> None:
    assert looks.found(5, a=1) == [("a", 0)]
    for count in (2, 3):
        assert looks.found(25) == []
        assert looks.found(5, a=count) == [("a", count - 1)]
    assert looks.found(25, a=0) == []
    looks.answers = False
    assert looks.found(60) == []
    looks.answers = True
    assert looks.found(25, a=0) == []
    looks.now_s += 86_400  # in which the pipeline does not run
    assert looks.found(25, a=0) == []
    assert looks.found(5, a=4) == [("a", 3)]

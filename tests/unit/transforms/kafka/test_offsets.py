"""Restrictions of partitions, and how they are claimed and split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.transforms.kafka.offsets import (
    OffsetInterval,
    OffsetsCoder,
    OffsetsProvider,
    OffsetsTracker,
    WholePartitionsProvider,
)


def test_a_claim_is_of_all_offsets_below() -> None:
    tracker = OffsetsTracker(OffsetInterval(10, 20))
    assert tracker.try_claim(15)
    with pytest.raises(ValueError, match="below 15 are claimed"):
        tracker.try_claim(14)
    with pytest.raises(ValueError, match="only those below 15"):
        tracker.check_done()
    assert tracker.try_claim(20)
    tracker.check_done()


def test_what_is_more_than_the_restriction_has_is_not_claimed_at_all() -> None:
    tracker = OffsetsTracker(OffsetInterval(10, 20))
    assert not tracker.try_claim(21)
    assert tracker.try_split(0) == (OffsetInterval(10, 10), OffsetInterval(10, 20))
    assert not tracker.try_claim(20)
    assert tracker.try_claim(tracker.current_restriction().stop or 0)
    tracker.check_done()


@pytest.mark.parametrize(
    ("offsets", "claimed", "fraction", "primary", "residual"),
    [
        pytest.param((5, None), 5, 0, (5, 5), (5, None), id="no end, nothing claimed"),
        pytest.param((5, None), 9, 0, (5, 9), (9, None), id="no end, some claimed"),
        pytest.param((0, 100), 20, 0, (0, 20), (20, 100), id="a checkpoint"),
        pytest.param((0, 100), 20, 0.5, (0, 60), (60, 100), id="half of the rest"),
    ],
)
def test_splits(
    offsets: tuple[int, int | None],
    claimed: int,
    fraction: float,
    primary: tuple[int, int],
    residual: tuple[int, int | None],
) -> None:
    tracker = OffsetsTracker(OffsetInterval(*offsets))
    assert tracker.try_claim(claimed)
    assert tracker.try_split(fraction) == (primary, residual)
    assert tracker.current_restriction() == primary
    assert tracker.is_bounded()


def test_what_cannot_be_split() -> None:
    endless = OffsetsTracker(OffsetInterval(5, None))
    assert endless.try_split(0.5) is None
    assert not endless.is_bounded()
    with pytest.raises(ValueError, match="without an end"):
        endless.check_done()
    done = OffsetsTracker(OffsetInterval(5, 9))
    assert done.try_claim(9)
    assert done.try_split(0) is None


@given(
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), max_size=30),
)
def test_every_offset_is_claimed_once(
    start: int, size: int, steps: list[tuple[int, float]]
) -> None:
    """By the restriction or by its residuals, whatever is split when."""
    tracker, residuals, position = OffsetsTracker(OffsetInterval(start, start + size)), [], start
    for batch, fraction in steps:
        upto = position + batch
        while not tracker.try_claim(upto):
            upto = max(position, tracker.current_restriction().stop or 0)
        position = upto
        if split := tracker.try_split(fraction):
            residuals.append(split[1])
    assert tracker.try_claim(tracker.current_restriction().stop or 0)
    tracker.check_done()
    parts = sorted([tracker.current_restriction(), *residuals])
    assert parts[0].start == start
    for one, other in zip(parts, [*parts[1:], OffsetInterval(start + size, None)], strict=True):
        assert one.stop == other.start


@pytest.mark.parametrize(
    "offsets", [OffsetInterval(0, None), OffsetInterval(7, 7), OffsetInterval(1, 2**62)]
)
def test_restrictions_survive_their_coder(offsets: OffsetInterval) -> None:
    assert OffsetsCoder().decode(OffsetsCoder().encode(offsets)) == offsets


def test_what_is_stored_is_read_by_later_versions() -> None:
    """A change of these bytes breaks checkpoints."""
    assert OffsetsCoder().encode(OffsetInterval(3, None)) == b"3:"
    assert OffsetsCoder().encode(OffsetInterval(3, 4)) == b"3:4"


def test_large_ranges_are_cut_into_pieces_that_meet() -> None:
    provider, element = OffsetsProvider(), ("t", 0, 5, 1_000_005, 0)
    whole = provider.initial_restriction(element)
    pieces = provider.split(element, whole)
    assert len(pieces) == 32
    assert [each.stop for each in pieces[:-1]] == [each.start for each in pieces[1:]]
    assert (pieces[0].start, pieces[-1].stop) == whole
    assert sum(provider.restriction_size(element, each) for each in pieces) == 1_000_000


def test_small_and_endless_ranges_stay_whole() -> None:
    provider = OffsetsProvider()
    for stop in (39_999, -1):
        element = ("t", 0, 0, stop, 0)
        whole = provider.initial_restriction(element)
        assert provider.split(element, whole) == [whole]
    assert provider.restriction_size(("t", 0, 9, -1, 0), OffsetInterval(9, None)) == 1


def test_where_offsets_are_committed_a_partition_is_read_from_first_to_last() -> None:
    provider, whole = WholePartitionsProvider(), OffsetInterval(0, 100_000)
    element = ("t", 0, 0, 100_000, 0)
    assert len(OffsetsProvider().split(element, whole)) > 1
    assert provider.split(element, whole) == [whole]
    tracker = provider.create_tracker(whole)
    assert tracker.try_claim(20)
    assert tracker.try_split(0.5) is None
    assert tracker.try_split(0) == (OffsetInterval(0, 20), OffsetInterval(20, 100_000))
    assert tracker.try_split(0) is None

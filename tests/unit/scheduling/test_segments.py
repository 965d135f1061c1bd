import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.scheduling.segments import (
    MAX_CRASHES,
    MAX_RUNS,
    Crashed,
    Event,
    FinishPlan,
    GiveUp,
    Lost,
    RanSegment,
    Rejected,
    Run,
    SegmentOrder,
)

A, B, C, D = (SegmentId(number) for number in range(4))
CHAIN = {A: set(), B: {A}, C: {B}, D: {C}}
FAN = {A: set(), B: {A}, C: {A}, D: {B, C}}
APART = {A: set(), B: set(), C: {A}, D: {B}}


def lost(reader: SegmentId, *writers: SegmentId) -> Lost:
    return Lost(reader, frozenset(writers), "gone")


@pytest.mark.parametrize(
    ("reads", "events", "then"),
    [
        pytest.param(CHAIN, [], Run(A), id="the first"),
        pytest.param(CHAIN, [RanSegment(A)], Run(B), id="one after another"),
        pytest.param(
            CHAIN,
            [RanSegment(A), RanSegment(B), RanSegment(C), RanSegment(D)],
            FinishPlan(),
            id="all have run",
        ),
        pytest.param(CHAIN, [RanSegment(A), Rejected(B, "")], Run(B), id="rejected: once more"),
        pytest.param(CHAIN, [RanSegment(A), Crashed(B, "")], Run(B), id="crashed: once more"),
        pytest.param(
            CHAIN,
            [RanSegment(A), lost(B, A)],
            Run(A, frozenset({A})),
            id="nobody else has read them",
        ),
        pytest.param(
            FAN,
            [RanSegment(A), RanSegment(B), lost(C, A)],
            Run(A, frozenset({A, B})),
            id="who has read the old rows is stale",
        ),
        pytest.param(
            FAN,
            [RanSegment(A), RanSegment(B), RanSegment(C), lost(D, B)],
            Run(B, frozenset({B})),
            id="its own source is still there",
        ),
        pytest.param(
            FAN,
            [RanSegment(A), RanSegment(B), RanSegment(C), lost(D, B), lost(B, A)],
            Run(A, frozenset({A, C})),
            id="its source was lost with it",
        ),
        pytest.param(
            APART,
            [RanSegment(A), RanSegment(B), RanSegment(C), lost(D, B)],
            Run(B, frozenset({B})),
            id="others are left alone",
        ),
        pytest.param(
            APART,
            [RanSegment(A), RanSegment(B), RanSegment(C), lost(D, B), RanSegment(B)],
            Run(D),
            id="and are not run a second time",
        ),
        pytest.param(
            CHAIN,
            [Crashed(A, "disk on fire")] * MAX_CRASHES,
            GiveUp(A, f"disk on fire ({MAX_CRASHES} times)"),
            id="crashes end",
        ),
        pytest.param(
            CHAIN,
            [Rejected(A, "two attempts")] * MAX_RUNS,
            GiveUp(A, f"two attempts ({MAX_RUNS} times)"),
            id="rejections end",
        ),
        pytest.param(
            CHAIN,
            [*[Rejected(A, "two attempts")] * (MAX_RUNS - 1), Crashed(A, "disk on fire")],
            GiveUp(A, f"disk on fire ({MAX_RUNS} times)"),
            id="the last reason is given",
        ),
        pytest.param(
            CHAIN,
            [*[RanSegment(A), lost(B, A)] * (MAX_RUNS - 1), RanSegment(A), lost(B, A)],
            GiveUp(A, f"gone ({MAX_RUNS} times)"),
            id="losses end",
        ),
    ],
)
def test_events_decide_on_the_next_segment(
    reads: dict[SegmentId, set[SegmentId]], events: list[Event], then: object
) -> None:
    order = SegmentOrder(reads)
    actions = [order.start(), *(order.on(event) for event in events)]
    assert actions[-1] == then
    assert all(isinstance(each, Run) for each in actions[:-1])


@pytest.mark.parametrize(
    "event",
    [RanSegment(B), lost(B, A), lost(A, B)],
    ids=["another runs", "another reads", "never ran"],
)
def test_unexpected_events_are_our_bug(event: Event) -> None:
    order = SegmentOrder(CHAIN)
    order.start()
    with pytest.raises(InvariantError):
        order.on(event)


def test_nothing_can_have_run_before_the_start() -> None:
    with pytest.raises(InvariantError, match="segment None runs"):
        SegmentOrder(CHAIN).on(RanSegment(A))


def test_what_was_released_runs_again_too_if_it_is_needed() -> None:
    """Nobody has the output of A any more, which B needs to run again."""
    order = SegmentOrder(
        FAN, done=(A, B), missing_outputs=lambda segment: {A} if segment == B else set()
    )
    assert order.start() == Run(C)
    assert order.on(RanSegment(C)) == Run(D)
    # C has read what A has made, which may be something else the second time.
    assert order.on(lost(D, B)) == Run(A, frozenset({A, B, C}))


def test_what_the_reader_itself_needs_may_be_gone() -> None:
    order = SegmentOrder(
        APART, done=(A, B, C), missing_outputs=lambda segment: {A} if segment == D else set()
    )
    assert order.start() == Run(D)
    assert order.on(lost(D, B)) == Run(A, frozenset({A, B, C}))

"""Which Spark jobs a segment takes when splittable DoFns leave something."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.scheduling.rounds import (
    Action,
    FinishSegment,
    RanLevels,
    Rounds,
    RunLevels,
    RunRound,
    Stopped,
    may_leave_work,
)


def _play(levels: int, left_by: Sequence[int | None]) -> list[Action]:
    rounds = Rounds(levels, 2.0)
    return [rounds.start(), *(rounds.on(RanLevels(level)) for level in left_by)]


@pytest.mark.parametrize(
    ("left_by", "actions"),
    [
        pytest.param([None], [RunLevels(0, 2), FinishSegment()], id="nothing is left"),
        pytest.param(
            [2, None],
            [RunLevels(0, 2), RunRound(2, 1, 4), FinishSegment()],
            id="by the last level: nothing is after it",
        ),
        pytest.param(
            [1, 1, 1, None, None],
            [
                RunLevels(0, 2),
                RunRound(1, 1, 4),
                RunRound(1, 2, 8),
                RunRound(1, 3, 16),
                RunLevels(2, 2),
                FinishSegment(),
            ],
            id="for three rounds; then what is after",
        ),
        pytest.param(
            [1, None, 2, None],
            [
                RunLevels(0, 2),
                RunRound(1, 1, 4),
                RunLevels(2, 2),
                RunRound(2, 1, 4),
                FinishSegment(),
            ],
            id="by another one after it",
        ),
    ],
)
def test_jobs_of_three_levels(left_by: list[int | None], actions: list[Action]) -> None:
    assert _play(3, left_by) == actions


@pytest.mark.parametrize(
    ("at", "then"),
    [(0, RunLevels(0, 2)), (1, RunLevels(1, 2)), (2, RunLevels(2, 2)), (3, FinishSegment())],
)
def test_what_the_only_task_has_not_run_is_run_by_another_job(at: int, then: Action) -> None:
    rounds = Rounds(3, 2.0)
    rounds.start()
    assert rounds.on(Stopped(at)) == then


def test_residuals_of_the_job_after_the_only_task_are_run_in_rounds() -> None:
    rounds = Rounds(3, 2.0)
    actions = [
        rounds.start(),
        rounds.on(Stopped(1)),
        rounds.on(RanLevels(1)),
        rounds.on(RanLevels(None)),
    ]
    assert actions == [RunLevels(0, 2), RunLevels(1, 2), RunRound(1, 1, 4), RunLevels(2, 2)]


@pytest.mark.parametrize("at", [-1, 4])
def test_a_level_that_is_not_there(at: int) -> None:
    rounds = Rounds(3, 2.0)
    rounds.start()
    with pytest.raises(InvariantError):
        rounds.on(Stopped(at))


def test_no_other_job_stops_early() -> None:
    rounds = Rounds(3, 2.0)
    rounds.start()
    rounds.on(RanLevels(1))
    with pytest.raises(InvariantError):
        rounds.on(Stopped(2))


@pytest.mark.parametrize(
    ("left_by", "next_one"),
    [([1], 0), ([1], 2), ([1, None], 1), ([], 3), ([None], None)],
    ids=["level before", "level after", "ran already", "no such level", "over"],
)
def test_residuals_of_impossible_levels_are_refused(
    left_by: list[int | None], next_one: int | None
) -> None:
    rounds = Rounds(3, 2.0)
    rounds.start()
    for level in left_by:
        rounds.on(RanLevels(level))
    with pytest.raises(InvariantError):
        rounds.on(RanLevels(next_one))


def test_nothing_can_have_run_before_the_start() -> None:
    with pytest.raises(InvariantError, match="after None"):
        Rounds(3, 2.0).on(RanLevels(None))


@given(st.data())
def test_every_level_runs_and_it_ends(data: st.DataObject) -> None:
    levels = data.draw(st.integers(1, 6))
    rounds = Rounds(levels, 2.0)
    action, done, jobs = rounds.start(), -1, 0
    while not isinstance(action, FinishSegment):
        jobs += 1
        match action:
            case RunLevels(first=first):
                assert first == done + 1
                left = data.draw(st.none() | st.integers(first, levels - 1))
                done = levels - 1 if left is None else left - 1
            case RunRound(level=level, number=number, budget_s=budget_s):
                assert level == done + 1
                assert budget_s == 2.0 * 2**number
                left = data.draw(st.none() | st.just(level)) if number < 5 else None
                done = level if left is None else done
        action = rounds.on(RanLevels(left))
    assert done == levels - 1
    assert jobs <= 7 * levels


@pytest.mark.parametrize(
    ("budget_s", "budgets"),
    [
        pytest.param(2.0, [2, 4, 5, 5, 2], id="rounds grow up to it"),
        pytest.param(9.0, [5, 5, 5, 5, 5], id="it is less than the first budget"),
    ],
)
def test_no_budget_exceeds_the_longest(budget_s: float, budgets: list[float]) -> None:
    rounds = Rounds(2, budget_s, longest_s=5.0)
    actions = [rounds.start(), *(rounds.on(RanLevels(left)) for left in (0, 0, 0, None))]
    assert [each.budget_s for each in actions if isinstance(each, RunLevels | RunRound)] == budgets


@pytest.mark.parametrize(
    ("sizes", "leaves"),
    [
        pytest.param([], True, id="only what is deferred"),
        pytest.param([7], True, id="one"),
        pytest.param([0], True, id="of unknown size"),
        pytest.param([5, 5], True, id="two"),
        pytest.param([1, 1, 90, 1, 1], True, id="one is much larger than all others"),
        pytest.param([5, 5, 5], False, id="three of one size"),
        pytest.param([1] * 100, False, id="many"),
    ],
)
def test_when_work_is_left_to_others(sizes: list[float], leaves: bool) -> None:
    assert may_leave_work(sizes) is leaves

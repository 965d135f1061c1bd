"""The budgets of an epoch: what is left of one kind of work does not raise that of the other."""

import pytest

from beam_spark_runner.scheduling.attempts import Report, ShardReport
from beam_spark_runner.scheduling.budgets import Budgets

MS = 1_000


def _report(*, cut_off: bool = False, interrupted: bool = False, spent_us: int = 0) -> Report:
    shard = ShardReport(
        epoch=1,
        attempt=1,
        next_event_us=None,
        next_clock_us=None,
        was_cut_off=cut_off,
        was_interrupted=interrupted,
    )
    return Report(level=1, partition=0, attempt=1, shard=shard, spent_us=spent_us)


@pytest.mark.parametrize("interval_ms", [0, 50, 500])
def test_what_is_due_doubles_its_budget_until_nothing_is_left(interval_ms: int) -> None:
    budgets = Budgets(interval_ms * MS)
    for _ in range(40):
        before_us = budgets.due_us
        budgets.choose_next(100 * MS, [_report(), _report(interrupted=True)])
        assert not budgets.were_enough
        assert budgets.due_us >= min(60_000 * MS, 2 * before_us)
    assert budgets.due_us == 60_000 * MS
    assert budgets.sources_us == interval_ms * MS
    for _ in range(40):
        budgets.choose_next(100 * MS, [_report()])
        assert budgets.were_enough
    assert budgets.due_us == budgets.longest_us == interval_ms * MS


def test_a_backlog_of_sources_leaves_the_time_for_what_is_due() -> None:
    budgets = Budgets(50 * MS)
    for _ in range(10):
        budgets.choose_next(2_000 * MS, [_report(cut_off=True, spent_us=100 * MS)])
    assert budgets.due_us == 50 * MS
    assert budgets.longest_us == budgets.sources_us > 500 * MS


def test_the_time_of_what_is_due_is_no_fixed_cost_of_an_epoch() -> None:
    budgets = Budgets(50 * MS)
    for _ in range(20):
        spent_us = budgets.sources_us + budgets.due_us
        report = _report(cut_off=True, interrupted=True, spent_us=spent_us)
        budgets.choose_next(300 * MS + spent_us, [report])
    assert budgets.due_us == 60_000 * MS
    assert budgets.sources_us <= 2_700 * MS  # nine times the fixed cost


def test_what_is_due_has_its_time_however_long_sources_make_an_epoch() -> None:
    """Epochs as measured. The longest one happened to have the largest budget for sources.

    So the line through the last epochs is steep, and the budget for sources falls to its least.
    """
    budgets = Budgets(50 * MS)
    took = [(17_105, 1_298), (5_439, 3_267), (18_967, 17_205), (6_492, 5_443), (7_000, 6_051)]
    for took_ms, tasks_ms in took:
        report = _report(cut_off=True, interrupted=True, spent_us=tasks_ms * MS)
        budgets.choose_next(took_ms * MS, [report])
    assert budgets.sources_us < 100 * MS
    assert budgets.due_us > 1_500 * MS

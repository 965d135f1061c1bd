"""For how long sources are processed in an epoch."""

import itertools
import random
import statistics
from collections.abc import Callable

import pytest

from beam_spark_runner.scheduling.source_budget import SourceBudget

MS = 1_000
INTERVAL_US = 500 * MS


def budgets(
    budget: SourceBudget,
    beyond_us: Callable[[int], float],
    fixed_ms: int = 300,
    epochs: int = 12,
) -> list[int]:
    """Return the budgets of epochs that have a backlog, after the first one of the run."""
    chosen: list[int] = []
    for _ in range(epochs + 1):
        beyond = beyond_us(budget.us)
        # In the first epoch, Spark's workers start.
        took_us = budget.us + round(beyond) if chosen else 30_000 * MS
        tasks_us = budget.us + round(max(0, beyond - fixed_ms * MS))
        budget.choose_next(took_us, tasks_us, was_enough=False)
        chosen.append(budget.us)
    return chosen


def line(fixed_ms: int, slope: float) -> Callable[[int], float]:
    return lambda budget_us: fixed_ms * MS + slope * budget_us


@pytest.mark.parametrize(
    ("fixed_ms", "slope", "expected_ms"),
    [
        (50, 0, 500),  # the interval suffices
        (300, 0, 2_700),
        (300, 0.5, 1_800),
        (2_000, 1, 9_000),
        (300, 10, 500),  # nearly all that an epoch does grows with its budget
        (50_000, 0, 60_000),
    ],
)
def test_the_fixed_cost_of_an_epoch_is_a_tenth_of_its_time(
    fixed_ms: int, slope: float, expected_ms: int
) -> None:
    chosen = budgets(SourceBudget(INTERVAL_US), line(fixed_ms, slope), fixed_ms)
    assert chosen[-1] == pytest.approx(expected_ms * MS, rel=0.01)


def test_what_elements_cost_downstream_does_not_make_epochs_longer_and_longer() -> None:
    chosen = budgets(SourceBudget(INTERVAL_US), line(300, 8), epochs=100)
    assert max(chosen) <= 4 * INTERVAL_US


@pytest.mark.parametrize("seed", range(20))
def test_budgets_follow_the_cost_although_epochs_are_noisy(seed: int) -> None:
    noise = random.Random(seed)
    chosen = budgets(
        SourceBudget(INTERVAL_US),
        lambda budget_us: line(300, 0.5)(budget_us) * noise.uniform(0.7, 1.3),
        epochs=200,
    )
    assert statistics.median(chosen) == pytest.approx(1_800 * MS, rel=0.5)
    assert statistics.quantiles(chosen, n=10)[-1] < 6 * 1_800 * MS
    assert max(chosen) < 12 * 1_800 * MS


def test_a_budget_grows_threefold_and_is_halved_at_most() -> None:
    budget = SourceBudget(INTERVAL_US)
    chosen = budgets(budget, line(10_000, 0), 10_000)
    chosen += budgets(budget, line(0, 0), 0)
    for earlier, later in itertools.pairwise(chosen):
        assert earlier / 2 <= later <= 3 * earlier
    assert chosen[-1] == INTERVAL_US


def test_from_no_interval_at_all() -> None:
    chosen = budgets(SourceBudget(0), line(300, 0.5))
    assert chosen[:4] == [0, 100 * MS, 300 * MS, 900 * MS]
    assert chosen[-1] == pytest.approx(1_800 * MS, rel=0.01)


def test_only_the_tasks_of_the_first_epoch_count() -> None:
    budget = SourceBudget(INTERVAL_US)
    budget.choose_next(30_000 * MS, 600 * MS, was_enough=False)
    assert budget.us == 900 * MS


def test_the_first_epoch_counts_until_there_are_two_others() -> None:
    budget, fixed_ms = SourceBudget(INTERVAL_US), 300
    budget.choose_next(30_000 * MS, 5_000 * MS, was_enough=False)  # a library was imported
    chosen = [budget.us]
    for _ in range(5):
        budget.choose_next(2 * budget.us + fixed_ms * MS, 2 * budget.us, was_enough=False)
        chosen.append(budget.us)
    assert chosen[:2] == [3 * INTERVAL_US, 9 * INTERVAL_US]
    assert chosen[-1] == 9 * fixed_ms // 2 * MS


def test_after_a_backlog_it_is_halved_until_it_is_the_interval() -> None:
    budget = SourceBudget(INTERVAL_US)
    budgets(budget, line(2_000, 0), 2_000, epochs=2)
    assert budget.us == 9 * INTERVAL_US
    assert not budget.was_enough
    chosen = []
    for _ in range(5):
        budget.choose_next(90_000 * MS, 0, was_enough=True)
        chosen.append(budget.us / INTERVAL_US)
    assert chosen == [4.5, 2.25, 1.125, 1, 1]
    assert budget.was_enough

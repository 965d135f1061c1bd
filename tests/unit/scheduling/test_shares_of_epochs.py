"""Whatever an epoch has no time for comes after it: the lag ends if the machine is fast enough."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.scheduling.attempts import Report, ShardReport
from beam_spark_runner.scheduling.budgets import Budgets
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant

SECOND_US = 1_000_000
SOURCES, PANES, TIMERS, EXPIRY = "sources", "panes", "user timers", "expiry of state"
KINDS = (SOURCES, PANES, TIMERS, EXPIRY)


@dataclass
class Machine:
    """Runs epochs over work of several kinds, in a simulated time.

    Attributes:
        fixed_us: what each epoch costs by itself.
        arriving: how much of each kind comes in a second.
        piece_us: how long a piece of each takes: an element, a window, a timer.
        reading_us: how long a task reads before it fires what is due, for each second since the
            last epoch.
        since_us: the time since the last epoch has begun.
    """

    fixed_us: int
    interval_us: int
    arriving: Mapping[str, int]
    piece_us: Mapping[str, int]
    reading_us: int = 0
    now_us: int = 0
    since_us: int = SECOND_US
    came: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def __post_init__(self) -> None:
        self.budgets = Budgets(self.interval_us)

    def left(self, kind: str) -> int:
        return int(self.came[kind]) - self.done[kind]

    def lag_s(self, kind: str) -> float:
        return self.left(kind) / self.arriving[kind] if self.left(kind) else 0.0

    def lags_s(self, kind: str, seconds: int) -> list[float]:
        """Return how far a kind of work is behind after each epoch of some time."""
        lags_s = []
        while self.now_us < seconds * SECOND_US:
            before_us = self.now_us
            self.epoch(self.since_us)
            self.since_us = self.now_us - before_us
            lags_s.append(self.lag_s(kind))
        return lags_s

    def epoch(self, since_us: int) -> None:
        for kind in KINDS:
            self.came[kind] += self.arriving[kind] * since_us / SECOND_US
        began_us = self.now_us
        self.now_us += self.fixed_us
        reports = []
        for level, kind in enumerate(KINDS):
            budgets = self.budgets
            budget_us = budgets.sources_us if kind == SOURCES else budgets.due_us
            spent_us = [self.reading_us * since_us // SECOND_US if kind != SOURCES else 0]
            interruption = Interruption(functools.partial(max, spent_us), budget_us, 1)

            def would_leave(to: Instant, kind: str = kind) -> bool:
                return self.left(kind) > 0

            while self.left(kind) and not interruption.stops(would_leave, Instant(MAX_US, 0)):
                spent_us[0] += self.piece_us[kind]
                self.done[kind] += 1
                interruption.fired()
            was_left = interruption.was_interrupted
            shard = ShardReport(
                epoch=1,
                attempt=1,
                next_event_us=None,
                next_clock_us=None,
                was_cut_off=was_left and kind == SOURCES,
                was_interrupted=was_left and kind != SOURCES,
            )
            reports.append(
                Report(level=level, partition=0, attempt=1, shard=shard, spent_us=spent_us[0])
            )
            self.now_us += spent_us[0]
        self.budgets.choose_next(self.now_us - began_us, reports)
        self.now_us = max(self.now_us, began_us + self.interval_us)


@pytest.mark.parametrize("interval_ms", [50, 500])
@pytest.mark.parametrize("fixed_ms", [100, 2_000])
@pytest.mark.parametrize("bottleneck", KINDS)
def test_each_kind_of_work_keeps_up(bottleneck: str, fixed_ms: int, interval_ms: int) -> None:
    """It takes 60% of the time, and the others 5% in all. Each epoch also reads for a while."""
    arriving = dict.fromkeys(KINDS, 100)
    machine = Machine(
        fixed_us=fixed_ms * 1_000,
        interval_us=interval_ms * 1_000,
        arriving=arriving,
        piece_us={kind: 6_000 if kind == bottleneck else 150 for kind in KINDS},
        reading_us=30_000,
    )
    lags_s = machine.lags_s(bottleneck, 600)
    assert max(lags_s) < 60
    assert lags_s[-1] < 5 + machine.since_us / SECOND_US
    assert all(machine.lag_s(kind) < 5 for kind in KINDS if kind != bottleneck)

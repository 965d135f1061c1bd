"""Whatever an epoch has no time for comes after it: the lag ends if the machine is fast enough."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.scheduling.attempts import Report, ShardReport
from beam_spark_runner.scheduling.source_budget import SourceBudget
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
    """

    fixed_us: int
    interval_us: int
    arriving: Mapping[str, int]
    piece_us: Mapping[str, int]
    reading_us: int = 0
    now_us: int = 0
    came: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    done: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def __post_init__(self) -> None:
        self.budget = SourceBudget(self.interval_us)

    def left(self, kind: str) -> int:
        return int(self.came[kind]) - self.done[kind]

    def lag_s(self, kind: str) -> float:
        return self.left(kind) / self.arriving[kind] if self.left(kind) else 0.0

    def epoch(self, since_us: int) -> None:
        for kind in KINDS:
            self.came[kind] += self.arriving[kind] * since_us / SECOND_US
        began_us = self.now_us
        self.now_us += self.fixed_us
        reports = []
        for kind in KINDS:
            before_us = self.now_us
            spent_us = [self.reading_us * since_us // SECOND_US if kind != SOURCES else 0]
            interruption = Interruption(functools.partial(max, spent_us), self.budget.us, 1)

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
            self.now_us += spent_us[0]
            # One after the other, as if each was a level of its own.
            level, took_us = KINDS.index(kind), self.now_us - before_us
            reports.append(
                Report(level=level, partition=0, attempt=1, shard=shard, spent_us=took_us)
            )
        self.budget.after_epoch(self.now_us - began_us, reports)
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
    since_us, lags_s = SECOND_US, []
    while machine.now_us < 600 * SECOND_US:
        before_us = machine.now_us
        machine.epoch(since_us)
        since_us = machine.now_us - before_us
        lags_s.append(machine.lag_s(bottleneck))
    assert max(lags_s) < 60
    assert machine.lag_s(bottleneck) < 5 + since_us / SECOND_US
    assert all(machine.lag_s(kind) < 5 for kind in KINDS if kind != bottleneck)

"""The number of partitions that is recommended for a stream follows its load, and stays there."""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from beam_spark_runner.scheduling.parallelism import (
    TARGET,
    Advice,
    EpochLoad,
    ParallelismRule,
    Reason,
)
from tests.examples import examples

_MOST = 64


@dataclass
class _World:
    """A stream that follows each recommendation at once.

    Attributes:
        arriving: elements per second, by the time in seconds.
        per_partition: elements that a partition can process in a second.
        unit: of the backlog, for one element. None: the sources have no backlog.
        slots: more partitions than these process no more.
        overhead_s: the time of a task without elements.
    """

    arriving: Callable[[float], float]
    per_partition: float
    unit: float | None = 1.0
    partitions: int = 1
    slots: int = 10 * _MOST
    overhead_s: float = 0.0
    most: int = _MOST
    now_s: float = 0.0
    backlog: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, seconds: float) -> "_World":
        rule = self.rule = getattr(self, "rule", ParallelismRule(1, self.most))
        emitted: list[tuple[float, float]] = []
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            running = min(self.partitions, self.slots)
            usable_s = max(0.0, 1.0 - self.overhead_s)
            capacity = running * usable_s * self.per_partition
            self.now_s += 1.0
            self.backlog += self.arriving(self.now_s)
            processed = min(self.backlog, capacity)
            self.backlog -= processed
            emitted = [*emitted[-9:], (self.now_s, processed)]
            busy_s = processed / self.per_partition + self.partitions * self.overhead_s
            rule.note(
                EpochLoad(
                    now_s=self.now_s,
                    partitions=self.partitions,
                    tasks_us=round(busy_s * 1e6 * self.noise.uniform(0.97, 1.03)),
                    was_cut_off=self.backlog > 1e-6,
                    elements_per_s=sum(each for _, each in emitted) / len(emitted),
                    backlog=None if self.unit is None else self.backlog * self.unit,
                )
            )
            assert rule.advice is not None
            if rule.advice.partitions != self.partitions:
                self.partitions = rule.advice.partitions
                self.changes.append((self.now_s, self.partitions))
        return self

    def directions(self) -> str:
        """The directions of the changes in order: ``+`` and ``-``."""
        numbers = [1, *(number for _, number in self.changes)]
        return "".join("+" if new > old else "-" for old, new in itertools.pairwise(numbers))


def _constant(rate: float) -> Callable[[float], float]:
    return lambda now_s: rate


@pytest.mark.parametrize("unit", [1.0, 0.01, 250.0])
@pytest.mark.parametrize("needed", [0.5, 1.5, 3.2, 10.0, 40.0])
def test_a_constant_load_gets_its_partitions_in_three_decisions(needed: float, unit: float) -> None:
    world = _World(_constant(1_000 * needed), per_partition=1_000, unit=unit).run(600)
    assert len(world.changes) <= 3
    assert needed <= world.partitions <= math.ceil(needed / TARGET) + 1
    changed_by_then = list(world.changes)
    world.run(3_600)
    assert world.changes == changed_by_then
    assert world.backlog < 1_000


def test_sources_without_a_backlog_double_their_partitions_until_they_have_caught_up() -> None:
    world = _World(_constant(10_000), per_partition=1_000, unit=None).run(3_600)
    assert [number for _, number in world.changes][:4] == [2, 4, 8, 16]
    assert world.directions().index("-") == len(world.changes) - 1
    assert world.partitions == 15  # 10 / 0.7


def test_more_partitions_than_slots_are_tried_once() -> None:
    world = _World(_constant(10_000), per_partition=1_000, slots=4, partitions=4, unit=None)
    world.run(3_600)
    assert [number for _, number in world.changes] == [8]
    assert world.rule.advice == Advice(8, Reason.NO_GAIN)


def test_a_spike_of_a_minute_is_followed_upwards_once_and_left_after_five_minutes() -> None:
    world = _World(lambda now_s: 8_000 if 600 <= now_s < 660 else 900, per_partition=1_000)
    world.run(3_600)
    assert set(world.directions()) <= {"+", "-"}
    assert "-+" not in world.directions()
    assert world.partitions == 2  # 900 / 0.7


def test_a_sawtooth_that_is_faster_than_the_rule_gets_what_its_peak_needs() -> None:
    world = _World(lambda now_s: 500 + 30 * (now_s % 120), per_partition=1_000)
    world.run(7_200)
    assert "-" not in world.directions()
    assert world.backlog < 5_000


def test_a_ramp_is_followed_without_a_step_back() -> None:
    world = _World(lambda now_s: min(20_000, 5 * now_s), per_partition=1_000).run(7_200)
    assert "-" not in world.directions()
    assert 20 <= world.partitions <= 31


def test_a_load_that_has_fallen_frees_partitions_after_five_minutes() -> None:
    world = _World(lambda now_s: 8_000 if now_s < 600 else 1_000, per_partition=1_000).run(850)
    peak = world.partitions
    assert peak >= 8
    world.run(600)
    assert world.partitions == 2
    assert world.directions().endswith("+-")


@pytest.mark.parametrize("epoch_s", [0.5, 1.0, 7.0, 90.0])
def test_a_load_that_has_fallen_frees_partitions_whatever_an_epoch_takes(epoch_s: float) -> None:
    rule = ParallelismRule(1, _MOST)
    for number in range(1, round(2_400 / epoch_s)):
        rule.note(
            EpochLoad(
                now_s=number * epoch_s,
                partitions=8,
                tasks_us=round(epoch_s * 1e6),
                was_cut_off=False,
                elements_per_s=1_000.0,
                backlog=None,
            )
        )
    assert rule.advice == Advice(2, Reason.UNUSED)


def test_a_backlog_that_shrinks_needs_no_more_partitions() -> None:
    world = _World(_constant(3_000), per_partition=1_000, partitions=4, backlog=200_000).run(240)
    assert world.changes == []
    assert world.rule.advice == Advice(4, Reason.FITS)


def test_nothing_is_recommended_beyond_the_limits() -> None:
    world = _World(_constant(50_000), per_partition=1_000, most=8).run(600)
    assert world.partitions == 8
    above = _World(_constant(100), per_partition=1_000, most=8, partitions=20).run(60)
    assert above.partitions == 8


@pytest.mark.parametrize("seed", range(examples(200)))
def test_no_constant_load_makes_the_number_rise_again_after_a_fall(seed: int) -> None:
    drawn = random.Random(seed)
    world = _World(
        _constant(drawn.uniform(10, 40_000)),
        per_partition=drawn.choice([300, 1_000, 5_000]),
        unit=drawn.choice([None, 1.0, 0.001, 64.0]),
        partitions=drawn.randint(1, _MOST),
        slots=drawn.choice([2, 8, 640]),
        overhead_s=drawn.choice([0.0, 0.01, 0.05]),
        backlog=drawn.choice([0.0, 1e6]),
        noise=random.Random(seed),
    )
    began = world.partitions
    world.run(7_200)
    numbers = [began, *(number for _, number in world.changes)]
    falls = [place for place in range(1, len(numbers)) if numbers[place] < numbers[place - 1]]
    if falls:
        rest = numbers[falls[0] :]
        assert rest == sorted(rest, reverse=True), numbers
    settled = [each for each in world.changes if each[0] > 5_400]
    assert len(settled) <= 1, world.changes

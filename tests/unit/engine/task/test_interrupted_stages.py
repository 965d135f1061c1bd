"""Timers of user code that are due while the epoch has no time for them, from epoch to epoch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.stages import opening
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.semantics.interruption import Interruption
from tests.unit.engine.task.epochs_of_tasks import (
    HAPPENED,
    SECOND,
    Tells,
    epoch,
    head_of,
    programs_in,
)

JOB = "interrupted stages"


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    HAPPENED.clear()
    yield
    worker.end_job(JOB, 60)


class Run:
    """Epochs without a budget; each continues from the previous one."""

    def __init__(self, folder: Path, batch: int | None) -> None:
        self._folder, self._number = folder, 0
        self._heads: list[reports_pb2.ShardHead] = []
        self._before: dict[int, int] = {}
        self.use(batch)

    def use(self, batch: int | None) -> None:
        """Continue with another option: see ``EpochPart.user_timer_batch``."""
        self._programs = programs_in(self._folder, Tells(), job=JOB, user_timer_batch=batch)
        (self.dest,) = (int(stage.input.dest) for stage in self._programs[1].stages)

    def epoch(
        self, watermark_us: int, *numbers: int, clock_s: int = 0, commits: bool = True
    ) -> tuple[list[str], reports_pb2.TaskReport]:
        """Return what has happened in the step, and what its task reports."""
        HAPPENED.clear()
        begins = reports_pb2.Epoch(
            number=self._number + 1,
            clock_us=clock_s * SECOND,
            clock_stands=True,
            heads=self._heads,
            watermarks_us=self._before,
        )
        *_, report = epoch(self._programs, begins, *numbers, watermark_us=watermark_us)
        assert not report.HasField("failure")
        if commits:
            self._number += 1
            self._heads = [head_of(report)] if report.shard.epoch else []
            self._before = {**self._before, **report.watermarks_us}
        return [*HAPPENED], report


@pytest.mark.parametrize("end_us", [9 * SECOND, MAX_US], ids=["later", "end of time"])
def test_one_timer_fires_in_each_epoch_and_each_once(tmp_path: Path, end_us: int) -> None:
    """Whatever attempts are lost. A task does not finish before all have fired."""
    run = Run(tmp_path, batch=1)
    run.epoch(SECOND, 2, 4, 6)
    clocks = ["clock 2", "clock 4", "clock 6"] if end_us == MAX_US else []
    for number in (2, 4, 6):
        for commits in (False, True):  # the first attempt dies before it is committed
            happened, report = run.epoch(end_us, commits=commits)
            assert happened == [f"event {number}"]
            # At the end of time the window ends, too, which takes an epoch more.
            assert report.shard.was_interrupted is (number < 6 or end_us == MAX_US)
            assert run.dest not in report.finished
            assert report.watermarks_us[run.dest] == end_us
    # At the end of time, timers of processing time fire once all others have, then the window ends.
    for each in clocks:
        happened, report = run.epoch(end_us)
        assert (happened, report.shard.was_interrupted) == ([each], True)
    happened, report = run.epoch(end_us)
    assert happened == []
    assert not report.shard.was_interrupted
    assert (run.dest in report.finished) is (end_us == MAX_US)


def test_without_the_option_all_fire_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path, batch=None)
    run.epoch(SECOND, 2, 4, 6)
    happened, report = run.epoch(5 * SECOND)
    assert happened == ["event 2", "event 4"]
    assert not report.shard.was_interrupted


def test_the_option_may_change_between_two_runs(tmp_path: Path) -> None:
    run = Run(tmp_path, batch=1)
    run.epoch(SECOND, 2, 3, 4, 5, 8)
    assert run.epoch(5 * SECOND)[0] == ["event 2"]
    run.use(None)
    happened, report = run.epoch(5 * SECOND)
    assert happened == ["event 3", "event 4", "event 5"]
    assert not report.shard.was_interrupted
    run.use(1)
    run.epoch(5 * SECOND, 7)
    assert run.epoch(9 * SECOND)[0] == ["event 7"]
    assert run.epoch(9 * SECOND)[0] == ["event 8"]


def test_timers_of_processing_time_all_fire(tmp_path: Path) -> None:
    run = Run(tmp_path, batch=1)
    run.epoch(SECOND, 2, 4, 6)
    assert run.epoch(5 * SECOND, clock_s=5)[0] == ["event 2", "clock 2", "clock 4"]


def test_a_later_watermark_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    """What is left of the earlier one fires with what the later one brings, in their order."""
    run = Run(tmp_path, batch=1)
    run.epoch(SECOND, 2, 3, 4)
    assert run.epoch(3 * SECOND)[0] == ["event 2"]
    assert run.epoch(4 * SECOND)[0] == ["event 3"]
    happened, report = run.epoch(4 * SECOND)
    assert (happened, report.shard.was_interrupted) == (["event 4"], False)


def test_what_is_due_has_its_time_once_all_elements_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recorded(Interruption):
        def begin_again(self) -> None:
            HAPPENED.append("begins again")
            super().begin_again()

    monkeypatch.setattr(opening, "Interruption", Recorded)
    run = Run(tmp_path, batch=1)
    run.epoch(SECOND, 2, 4)
    assert run.epoch(5 * SECOND, 7)[0] == ["got 7", "event 2", "begins again"]

"""Tasks of two epochs, of which the second begins with what the first one has stored."""

from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import worker
from tests.unit.engine.task.epochs_of_tasks import (
    HAPPENED,
    SECOND,
    Tells,
    epoch,
    head_of,
    programs_in,
)

JOB = "stages that begin"


class Fails(beam.DoFn):  # type: ignore[misc]
    def setup(self) -> None:
        HAPPENED.append("set up")

    def process(self, number: int) -> None:
        HAPPENED.append(f"got {number}")
        raise ValueError("no")

    def teardown(self) -> None:
        HAPPENED.append("torn down")


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    HAPPENED.clear()
    yield
    worker.end_job(JOB, 60)


def test_a_step_that_fails_before_anything_comes_is_torn_down(tmp_path: Path) -> None:
    programs = programs_in(tmp_path, Fails(), job=JOB, is_stable=True)
    (stored,) = epoch(programs, reports_pb2.Epoch(number=1), 1)
    assert stored.shard.awaits_commit
    assert HAPPENED == ["set up"]
    (report,) = epoch(programs, reports_pb2.Epoch(number=2, heads=[head_of(stored)]))
    assert "ValueError: no" in report.failure.cause
    assert HAPPENED == ["set up", "got 1", "torn down"]


def test_an_attempt_sees_what_is_committed_whatever_comes_with_it(tmp_path: Path) -> None:
    """Neither elements, nor the watermark, nor the clock of its own epoch."""
    programs = programs_in(tmp_path, Tells(), job=JOB, is_stable=True)
    first = epoch(
        programs, reports_pb2.Epoch(number=1, clock_us=3 * SECOND), 2, 4, watermark_us=3 * SECOND
    )
    assert HAPPENED == []

    def second(clock_s: int, watermark_s: int, *numbers: int) -> reports_pb2.TaskReport:
        HAPPENED.clear()
        begins = reports_pb2.Epoch(
            number=2,
            clock_us=clock_s * SECOND,
            committed_clock_us=3 * SECOND,
            clock_stands=True,
            heads=[head_of(first[1])],
            watermarks_us=first[1].watermarks_us,
        )
        *_, report = epoch(programs, begins, *numbers, watermark_us=watermark_s * SECOND)
        return report

    expected = ["got 2", "got 4", "event 2", "clock 2"]
    more = second(20, 20, 1, 7)
    assert expected == HAPPENED
    assert more.shard.awaits_commit
    less = second(4, 4)
    assert expected == HAPPENED
    assert not less.shard.awaits_commit
    (dest,) = (stage.input.dest for stage in programs[1].stages)
    assert (more.watermarks_us[dest], less.watermarks_us[dest]) == (20 * SECOND, 4 * SECOND)

"""Tasks that stay for many requests, without Spark: a thread in place of its job."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import first_task, resident_server, task
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.scheduling.attempts import Accepted, judge
from beam_spark_runner.spark.driver import resident_task
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from tests.unit.engine.task.emitted import reports_in
from tests.unit.engine.task.epochs_of_tasks import Tells, programs_in, rows_of
from tests.unit.engine.task.segments_of_tasks import FirstSegment

JOB = "resident tasks"
EPOCH = reports_pb2.Epoch(number=1, clock_stands=True)


class Spark:
    """Runs the function of a job in the thread that collects its values."""

    def __init__(self) -> None:
        self.jobs = 0
        self.fails = False

    def collect_values(
        self, spark: Any, function: Callable[[Any], Iterator[Any]], title: str
    ) -> None:
        assert (spark, title) == (self, "small segments")
        self.jobs += 1
        if self.fails:
            raise ValueError("no such worker")
        assert list(function(iter(()))) == []


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark()
    monkeypatch.setattr(resident_task, "activate_session", lambda _: None)
    monkeypatch.setattr(resident_task, "collect_values", spark.collect_values)
    for limit in ("IDLE_S", "MAX_S"):
        monkeypatch.setattr(resident_task, limit, 600.0)  # however slow this machine is
    return spark


class Cancelled(RunnerError):
    """The job is to end."""


@pytest.fixture
def cancelled() -> list[bool]:
    return []


@pytest.fixture
def resident(
    spark: Spark, cancelled: list[bool], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ResidentTask]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker

    def check_cancelled() -> None:
        if cancelled:
            raise Cancelled

    session: Any = spark
    made = ResidentTask(
        session, lambda _: contextlib.nullcontext(), check_cancelled, "small segments"
    )
    yield made
    made.close()
    worker.end_job(JOB, 60)


@pytest.fixture
def programs(tmp_path: Path) -> Sequence[LevelProgram]:
    return programs_in(tmp_path, Tells(), job=JOB)


def test_one_task_runs_many_epochs(
    resident: ResidentTask, spark: Spark, programs: Sequence[LevelProgram]
) -> None:
    for _ in range(3):
        reports = resident.run_epoch(programs, rows_of(programs, EPOCH, 1, 2))
        assert reports is not None
        assert judge(reports, {1: 1}, first=0, materialised={}) == Accepted()
    assert spark.jobs == 1


@pytest.mark.parametrize("limit", ["IDLE_S", "MAX_S"])
def test_the_next_epoch_starts_another_task_if_the_last_one_has_ended(
    limit: str,
    resident: ResidentTask,
    spark: Spark,
    programs: Sequence[LevelProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resident_task, limit, -1.0)
    for number in (1, 2):
        assert resident.run_epoch(programs, rows_of(programs, EPOCH, 1)) is not None
        assert resident._job is not None
        resident._job.result()  # it ends by itself
        assert spark.jobs == number


def test_rows_that_do_not_fit_in_memory(
    resident: ResidentTask, programs: Sequence[LevelProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_task, "MAX_BYTES", 10)
    assert resident.run_epoch(programs, rows_of(programs, EPOCH, 1)) is None


def test_a_job_that_fails_before_its_task_connects(
    resident: ResidentTask, spark: Spark, programs: Sequence[LevelProgram]
) -> None:
    spark.fails = True
    with pytest.raises(ValueError, match="no such worker"):
        resident.run_epoch(programs, rows_of(programs, EPOCH, 1))


def test_a_task_that_fails_during_an_epoch(
    resident: ResidentTask,
    spark: Spark,
    programs: Sequence[LevelProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("the worker has died")

    rows = rows_of(programs, EPOCH, 1)
    with monkeypatch.context() as patch:
        patch.setattr(resident_server, "run_chained", fail)
        with pytest.raises(ValueError, match="the worker has died"):
            resident.run_epoch(programs, rows)
    assert resident.run_epoch(programs, rows) is not None, "the epoch can be run again"
    assert spark.jobs == 2


def test_a_job_that_is_to_end_waits_for_no_task(
    resident: ResidentTask,
    spark: Spark,
    cancelled: list[bool],
    programs: Sequence[LevelProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark may have no slot for it."""
    cancelled.append(True)
    monkeypatch.setattr(resident, "_serve", lambda: None)
    with pytest.raises(Cancelled):
        resident.run_epoch(programs, rows_of(programs, EPOCH, 1))


def build_sums(p: beam.Pipeline) -> None:
    p | beam.Create([("a", 1), ("b", 2)]) | beam.CombinePerKey(sum)


@pytest.fixture
def segment() -> Sequence[LevelProgram]:
    return FirstSegment(build_sums, JOB).programs


def test_one_task_begins_many_segments(
    resident: ResidentTask, spark: Spark, segment: Sequence[LevelProgram]
) -> None:
    for _ in range(3):
        coded = resident.begin_segment(segment, 600.0)
        assert coded is not None
        levels = {report.level for report in reports_in(schema.decoded_batches(coded))}
        assert levels == {program.level for program in segment}
    assert spark.jobs == 1


def test_a_segment_whose_rows_do_not_fit_in_memory(
    resident: ResidentTask, segment: Sequence[LevelProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_task, "MAX_RETURNED_BYTES", 10)
    assert resident.begin_segment(segment, 600.0) is None


def test_a_released_task_ends_and_the_next_request_starts_another(
    resident: ResidentTask, spark: Spark, segment: Sequence[LevelProgram]
) -> None:
    resident.release()  # there is none yet
    for number in (1, 2):
        assert resident.begin_segment(segment, 600.0) is not None
        resident.release()
        assert resident._job is not None
        resident._job.result()  # its slot is free
        assert spark.jobs == number


def test_a_task_with_a_request_is_not_released(
    resident: ResidentTask,
    spark: Spark,
    segment: Sequence[LevelProgram],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread runs a Spark job that helps it."""
    begin = first_task.begin_segment

    def release_first(*arguments: Any) -> bytes | None:
        resident.release()
        return begin(*arguments)

    monkeypatch.setattr(resident_server, "begin_segment", release_first)
    for _ in range(2):
        assert resident.begin_segment(segment, 600.0) is not None
    assert spark.jobs == 1


def test_the_folder_of_temporary_files_may_have_a_long_path(
    resident: ResidentTask,
    segment: Sequence[LevelProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert resident.begin_segment(segment, 600.0) is not None
    assert list(folder.iterdir()) == []

"""Drivers of pipelines that write Spark tables die at any moment, and later starts continue."""

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from pyspark.sql import DataFrameWriter

from beam_spark_runner.core.errors import (
    BundleFailedError,
    PipelineRefusedError,
    SparkJobError,
    TableError,
)
from beam_spark_runner.recovery.batch_manifest import decode
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.begun_writes import UnknownTableWriteError
from beam_spark_runner.recovery.manifest import FencedError, fence_name
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import counter_of
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.recoverable import Job

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings(  # of a driver that dies when its job ends
        "ignore::pytest.PytestUnhandledThreadExceptionWarning"
    ),
]

SCHEMA = "id BIGINT, part INT"
OLD, NEW = [100, 101], list(range(20))
TABLE = "recovered"


class Case(NamedTuple):
    """A write: its mode, whether the target exists before, and the ids that it has in the end."""

    mode: str
    exists: bool
    ids: list[int]

    def __str__(self) -> str:
        return f"{self.mode} {'existing' if self.exists else 'missing'}"


CASES = [
    Case("append", True, OLD + NEW),
    Case("append", False, NEW),
    Case("overwrite", True, NEW),
    Case("overwrite", False, NEW),
    Case("error", False, NEW),
    Case("ignore", False, NEW),
    Case("ignore", True, OLD),
]


class Counted(beam.DoFn):  # type: ignore[misc]
    def process(self, id_: int) -> Iterator[dict[str, int]]:
        Metrics.counter("tests", "counted").inc()
        yield {"id": id_, "part": id_ % 3}


class TableJob(Job):
    """A job that writes one table, and a text file with the result of the write.

    Args:
        spark: The session.
        folder: For the job and its target.
        target: "path" or "table".
        case: What is written.
    """

    def __init__(self, spark: Any, folder: Path, target: str, case: Case) -> None:
        super().__init__(spark, folder, self._write)
        self.spark, self.case = spark, case
        self.path = folder / "target"
        self.arguments: dict[str, Any] = (
            {"path": str(self.path)} if target == "path" else {"table": TABLE}
        )
        spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
        shutil.rmtree(self.warehouse, ignore_errors=True)
        if case.exists:
            old = spark.createDataFrame([(id_, id_ % 3) for id_ in OLD], SCHEMA).coalesce(1)
            if target == "path":
                old.write.parquet(str(self.path))
            else:
                old.write.saveAsTable(TABLE)

    @property
    def warehouse(self) -> Path:
        place = self.spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
        return Path(place) / TABLE

    def _write(self, p: beam.Pipeline, out: Path) -> None:
        rows = p | beam.Create(NEW) | beam.Reshuffle() | beam.ParDo(Counted())
        written = rows | WriteToSpark(schema=SCHEMA, mode=self.case.mode, **self.arguments)
        facts = written | "facts" >> beam.Map(lambda it: f"{it.written} {it.rows} {bool(it.files)}")
        facts | beam.io.WriteToText(str(out / "result"))

    def ids(self) -> list[int]:
        """Return what the target has, in order."""
        if "path" in self.arguments:
            if not self.path.exists():
                return []
            frame = self.spark.read.schema(SCHEMA).parquet(str(self.path))
        else:
            if not self.spark.catalog.tableExists(TABLE):
                return []
            self.spark.catalog.refreshTable(TABLE)
            frame = self.spark.table(TABLE)
        return sorted(row.id for row in frame.collect())

    def check(self, result: Any) -> None:
        """Check what all starts together have made."""
        is_skipped = self.case.exists and self.case.mode == "ignore"
        assert self.ids() == sorted(self.case.ids)
        assert self.lines() == ["False 0 False" if is_skipped else f"True {len(NEW)} True"]
        assert counter_of(result, "counted") == len(NEW)
        assert self.names() == []

    def dies(self, at: int, *, is_done: bool) -> list[str] | None:
        """Start, and die at a change of the folder; return the changes. None: it has ended."""
        deaths = Deaths(self.folder, at, is_done=is_done)
        with deaths.striking():
            try:
                self.start()
            except Died:
                return deaths.changes
        return deaths.changes if self.names() else None


def changes_of(job: TableJob) -> list[str]:
    """Return the changes that an undisturbed run makes in the folder of its job."""
    deaths = Deaths(job.folder)
    with deaths.striking():
        job.check(job.start())
    return deaths.changes


def is_open(job: TableJob) -> bool:
    """Whether rows are in the table, and the last commit says only that the write has begun."""
    # A job that was submitted and has not begun has no folder yet.
    names = sorted(job.folder.glob("job-*/batch-*.manifest"))
    if not names:
        return False
    return bool(decode(names[-1].read_bytes(), "newest").begun) and NEW[0] in job.ids()


def check_deaths(spark: Any, folder: Path, target: str, case: Case, most: int | None) -> None:
    changes = changes_of(TableJob(spark, folder / "undisturbed", target, case))
    moments = [(at, is_done) for at in range(len(changes)) for is_done in (False, True)]
    if most is not None:
        moments = random.Random(f"{target} {case}").sample(moments, most)
    for at, is_done in moments:
        job = TableJob(spark, folder / f"{at} {is_done}", target, case)
        if job.dies(at, is_done=is_done):
            continue_(job)


def continue_(job: TableJob) -> None:
    """Start again, and check that the rows are there once."""
    if job.case.mode == "append" and is_open(job):
        with pytest.raises(UnknownTableWriteError, match="a second write might double them"):
            job.start()
        assert job.ids() == sorted(job.case.ids)
    else:
        job.check(job.start())


@pytest.mark.parametrize("target", ["path", "table"])
def test_a_table_is_written_once(spark_session: Any, tmp_path: Path, target: str) -> None:
    """Two moments; the rare test has all."""
    check_deaths(spark_session, tmp_path, target, CASES[target == "table"], 2)


@pytest.mark.rare
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", ["path", "table"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_table_is_written_once_at_all_moments(
    spark_session: Any, tmp_path: Path, target: str, case: Case
) -> None:
    check_deaths(spark_session, tmp_path, target, case, None)


WRITES = [case for case in CASES if not (case.mode == "ignore" and case.exists)]


def dies_in_write(job: TableJob, at: str) -> None:
    """Let the driver die in the write of Spark.

    Args:
        job: The job.
        at: "before" it, "amid" the tasks' files, or "after" it.
    """

    def dying(name: str) -> Any:
        real = getattr(DataFrameWriter, name)

        def write(writer: Any, *arguments: Any, **named: Any) -> None:
            if at == "after":
                real(writer, *arguments, **named)
            if at == "amid":
                leave_remains(job)
            raise Died

        return mock.patch.object(DataFrameWriter, name, write)

    deaths = Deaths(job.folder, 1 << 20)
    with deaths.striking(), dying("save"), dying("saveAsTable"), pytest.raises(Died):
        job.start()


def leave_remains(job: TableJob) -> None:
    """Leave what tasks have written, and what a killed driver has not committed."""
    place = job.path if "path" in job.arguments else job.warehouse
    rows = job.spark.createDataFrame([(7, 1)], SCHEMA).coalesce(1)
    rows.write.parquet(str(place.parent / "remains"))
    (file,) = (place.parent / "remains").glob("*.parquet")
    task = place / "_temporary" / "0" / "task_1"
    task.mkdir(parents=True)
    shutil.move(file, task)
    shutil.rmtree(place.parent / "remains")


@pytest.mark.parametrize(
    ("target", "case", "at"),
    [
        pytest.param(target, case, at, marks=() if number % 10 == 0 else pytest.mark.rare)
        for number, (target, case, at) in enumerate(
            itertools.product(("path", "table"), WRITES, ("before", "amid", "after"))
        )
    ],
    ids=str,
)
def test_a_driver_dies_in_the_write(
    spark_session: Any, tmp_path: Path, target: str, case: Case, at: str
) -> None:
    job = TableJob(spark_session, tmp_path, target, case)
    dies_in_write(job, at)
    if case.exists and case.mode == "overwrite" and at == "amid" and target == "table":
        spark_session.sql(f"DROP TABLE {TABLE}")  # as Spark does before it writes
        leave_remains(job)
    continue_(job)


def test_half_a_commit_of_files_is_not_written_again(spark_session: Any, tmp_path: Path) -> None:
    """What is to be done is in the error: once the files are removed, the job continues."""
    job = TableJob(spark_session, tmp_path, "path", Case("append", True, OLD + NEW))
    before = set(job.path.iterdir())
    dies_in_write(job, "after")
    new = sorted(each for each in job.path.iterdir() if each not in before)
    data = [each for each in new if each.suffix == ".parquet"]
    data[0].unlink()
    step = "WriteToSpark.*/Write"
    with pytest.raises(UnknownTableWriteError, match=f"{step} appends 20 rows to parquet in"):
        job.start()
    for each in data[1:]:
        each.unlink()
    job.check(job.start())


def test_a_driver_that_was_replaced_does_not_write(spark_session: Any, tmp_path: Path) -> None:
    job = TableJob(spark_session, tmp_path, "path", Case("append", True, OLD + NEW))
    real = BatchStart.check_fence

    def newer() -> Path:
        return job.own / fence_name(2)

    def check(start: Any) -> None:
        if start.manifest.begun and not newer().exists():
            newer().write_text('{"commit": 3, "finished": 0}')
        real(start)

    with mock.patch.object(BatchStart, "check_fence", check), pytest.raises(FencedError):
        job.start()
    assert newer().exists()
    assert job.ids() == sorted(OLD)
    job.check(job.start())


def test_lost_rows_do_not_write_a_table_again(spark_session: Any, tmp_path: Path) -> None:
    """The step after the write also reads what the table was made of, which is lost."""
    obstacle = tmp_path / "obstacle"
    obstacle.touch()

    def late(line: str, total: int) -> str:
        if obstacle.exists():
            raise ValueError("not now")
        return f"{line} of {total}"

    job = TableJob(spark_session, tmp_path, "path", Case("append", True, OLD + NEW))

    def build(p: beam.Pipeline, out: Path) -> None:
        ids = p | beam.Create(NEW) | beam.Reshuffle() | beam.ParDo(Counted())
        written = ids | WriteToSpark(schema=SCHEMA, mode="append", **job.arguments)
        pairs = ids | beam.Map(lambda row: (row["part"], row["id"])) | beam.GroupByKey()
        facts = written | beam.Map(lambda it: f"{it.written} {it.rows} {bool(it.files)}")
        count = beam.pvalue.AsSingleton(pairs | beam.combiners.Count.Globally())
        lines = facts | "late" >> beam.Map(late, count)
        lines | beam.io.WriteToText(str(out / "result"))

    with pytest.raises(BundleFailedError, match="not now"):
        job.start(build=build)
    assert job.ids() == sorted(OLD + NEW)
    obstacle.unlink()
    for rows in job.own.glob("*/*.rows"):
        rows.unlink()
    for each in job.own.glob("work-*/gathered-*"):
        each.unlink()
    job.start(build=build)
    assert job.ids() == sorted(OLD + NEW)
    assert job.lines() == ["True 20 True of 3"]


def test_what_others_have_made_meanwhile_is_refused(spark_session: Any, tmp_path: Path) -> None:
    """A target that appears before the write begins is not one of this job."""
    job = TableJob(spark_session, tmp_path, "path", Case("error", False, NEW))
    assert job.dies(5, is_done=True)
    spark_session.range(1).write.parquet(str(job.path))
    with pytest.raises(PipelineRefusedError, match="exists already, and the mode is error"):
        job.start()


def test_a_write_that_spark_refuses_is_tried_again(spark_session: Any, tmp_path: Path) -> None:
    job = TableJob(spark_session, tmp_path, "path", Case("append", True, OLD + NEW))
    with (
        mock.patch.object(DataFrameWriter, "save", side_effect=RuntimeError("no space")),
        pytest.raises(SparkJobError, match="no space"),
    ):
        job.start()
    job.check(job.start())


def test_a_source_that_was_written_is_not_read_again(spark_session: Any, tmp_path: Path) -> None:
    """Its rows are those of the first start, or none."""
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    job = TableJob(spark_session, tmp_path, "path", Case("append", True, OLD))

    def fail(row: Any, written: Any) -> str:
        if obstacle.exists():
            raise ValueError("not now")
        return str(row.id)

    def build(p: beam.Pipeline, out: Path) -> None:
        read = p | ReadFromSpark(path=str(job.path), schema=SCHEMA)
        more = read | beam.Map(lambda row: {"id": row.id + 10, "part": 0})
        written = more | WriteToSpark(schema=SCHEMA, mode="append", **job.arguments)
        lines = read | "late" >> beam.Map(fail, beam.pvalue.AsSingleton(written))
        lines | beam.io.WriteToText(str(out / "result"))

    with pytest.raises(BundleFailedError, match="not now"):
        job.start(build=build)
    assert job.ids() == [100, 101, 110, 111]
    obstacle.unlink()
    for rows in job.own.glob("*/*.rows"):
        rows.unlink()
    with pytest.raises(TableError, match="an earlier start has begun to write it"):
        job.start(build=build)
    assert job.ids() == [100, 101, 110, 111]

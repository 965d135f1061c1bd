"""Drivers die around writes to Delta and Iceberg, and later starts continue; see ``test_lakes``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from pyspark.sql import DataFrameWriter

from beam_spark_runner.recovery.begun_writes import UnknownTableWriteError
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import WriteToSpark
from integration.lakes import KINDS, NEEDS_PACKAGES, Table, conf_in, drop, overwrites
from integration.table_pipelines import SCHEMA, row_of
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.recoverable import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    NEEDS_PACKAGES,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

OLD, NEW, OTHERS = [100, 101], list(range(20)), [200]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables of catalogs are."""
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[Any]:
    few = {"spark.databricks.delta.snapshotPartitions": "2"}
    session = start_classic("local[2]", "lakes", {**conf_in(home), **few})
    session.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    yield session
    session.stop()


@pytest.fixture(params=KINDS)
def table(
    spark: Any, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Table]:
    drop(spark)
    yield Table(spark, home, tmp_path, request.param)
    drop(spark)


class TableJob(Job):
    """A job that writes a table, and the result of the write to a text file."""

    def __init__(self, table: Table, folder: Path, mode: str) -> None:
        super().__init__(table.target.spark, folder / "job", self._write)
        self._arguments = {**table.target.arguments, "mode": mode}

    def _write(self, p: beam.Pipeline, out: Path) -> None:
        rows = p | beam.Create(NEW) | beam.Reshuffle() | beam.Map(row_of)
        written = rows | WriteToSpark(schema=SCHEMA, **self._arguments)
        facts = written | "facts" >> beam.Map(lambda it: f"{it.written} {it.rows}")
        facts | beam.io.WriteToText(str(out / "result"))

    def dies(self, *, has_written: bool) -> None:
        """Start, and die before or after Spark's write."""

        def dying(name: str) -> Any:
            real = getattr(DataFrameWriter, name)

            def write(writer: Any, *arguments: Any, **named: Any) -> None:
                if has_written:
                    real(writer, *arguments, **named)
                raise Died

            return mock.patch.object(DataFrameWriter, name, write)

        with (
            Deaths(self.folder, 1 << 20).striking(),
            dying("save"),
            dying("saveAsTable"),
            pytest.raises(Died),
        ):
            self.start()

    def check(self) -> None:
        """Check the result of the write, and that no file is left."""
        assert self.lines() == [f"True {len(NEW)}"]
        assert self.names() == []


@pytest.mark.parametrize("has_written", [False, True])
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_is_written_once(
    table: Table, tmp_path: Path, mode: str, exists: bool, has_written: bool
) -> None:
    if exists and mode == "overwrite" and not overwrites(table.kind):
        pytest.skip("this Spark overwrites no Delta table by its name")
    if exists:
        table.target.write(OLD)
    job = TableJob(table, tmp_path, mode)
    job.dies(has_written=has_written)
    job.start()
    job.check()
    assert table.target.ids() == sorted([*OLD, *NEW] if exists and mode == "append" else NEW)
    assert len(table.commits()) == 1 + exists


@pytest.mark.parametrize("mode", ["append", "error"])
def test_what_others_have_written_since_stays(table: Table, tmp_path: Path, mode: str) -> None:
    job = TableJob(table, tmp_path, mode)
    job.dies(has_written=True)
    table.target.write(OTHERS, mode="append")
    job.start()
    job.check()
    assert table.target.ids() == sorted([*NEW, *OTHERS])


def test_the_next_job_in_the_folder_writes_again(table: Table, tmp_path: Path) -> None:
    """It is another job, although its commits have the same numbers."""
    for number in (1, 2):
        job = TableJob(table, tmp_path / str(number), "append")
        job.start()
        assert len(table.target.ids()) == number * len(NEW)


@pytest.mark.parametrize("table", ["iceberg table"], indirect=True)  # Delta counts writes itself
def test_snapshots_that_were_removed_may_have_been_the_write(
    table: Table, tmp_path: Path, spark: Any
) -> None:
    table.target.write(OLD)
    job = TableJob(table, tmp_path, "append")
    job.dies(has_written=True)
    table.target.write(OTHERS, mode="append")
    spark.sql(
        "CALL lake.system.expire_snapshots(table => 'db.numbers', retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    with pytest.raises(UnknownTableWriteError, match="Look whether it has them"):
        job.start()
    assert table.target.ids() == sorted([*OLD, *NEW, *OTHERS])

"""Pipelines that would overwrite what they read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.core.table_steps import TableRead, TableWrite
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark.driver.overwritten_sources import check_overwrites
from beam_spark_runner.spark.driver.table_frames import OpenRead
from beam_spark_runner.spark.driver.table_writes import OpenWrite
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import run

pytestmark = pytest.mark.spark
COUNT = 6
TABLE = "beam_overwritten"


@pytest.fixture
def parts(spark_session: Any, tmp_path: Path) -> Iterator[Path]:
    """A folder with Parquet files of ids by part, which are a table, too."""
    path = tmp_path / "parts"
    frame = spark_session.range(COUNT).selectExpr("id", "id % 2 as part")
    frame.write.partitionBy("part").option("path", str(path)).saveAsTable(TABLE)
    yield path
    spark_session.sql(f"DROP TABLE IF EXISTS {TABLE}")


def copy(read: dict[str, Any], write: dict[str, Any]) -> Callable[[beam.Pipeline], None]:
    def build(p: beam.Pipeline) -> None:
        rows = p | "Old" >> ReadFromSpark(**read) | beam.Map(lambda row: {"id": row.id + 100})
        _ = rows | "New" >> WriteToSpark(schema="id BIGINT", **write)

    return build


def ids(spark: Any, path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.parquet(str(path)).collect())


@pytest.mark.parametrize("target", ["path", pytest.param("table", marks=pytest.mark.rare)])
def test_what_is_read_is_not_overwritten(spark_session: Any, parts: Path, target: str) -> None:
    write = {"path": str(parts)} if target == "path" else {"table": TABLE}
    reads: list[dict[str, Any]] = [
        {"path": str(parts)},
        {"path": str(parts / "part=1")},
        {"table": TABLE},
        {"query": f"SELECT id FROM {TABLE} WHERE part = 0"},
        {"dataframe": spark_session.table(TABLE).where("id > 1")},
    ]
    for read in reads:
        with pytest.raises(PipelineRefusedError, match=r"New.* it would overwrite .*, which Old"):
            run(spark_session, copy(read, {**write, "mode": "overwrite"}))
        assert ids(spark_session, parts) == [*range(COUNT)]


def test_a_part_of_what_is_read_is_not_overwritten(spark_session: Any, parts: Path) -> None:
    write = {"path": str(parts / "part=0"), "mode": "overwrite"}
    with pytest.raises(PipelineRefusedError, match="it would overwrite parquet in"):
        run(spark_session, copy({"path": str(parts)}, write))


def test_other_writes_next_to_what_is_read(spark_session: Any, parts: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for _ in range(2):  # the second time, it is there
        run(spark_session, copy({"table": TABLE}, {"path": str(other), "mode": "overwrite"}))
        assert ids(spark_session, other) == [*range(100, 100 + COUNT)]
    run(spark_session, copy({"path": str(other)}, {"path": str(other), "mode": "append"}))
    assert ids(spark_session, other) == [*range(100, 106), *range(200, 206)]


def test_a_table_of_a_database(spark_session: Any) -> None:
    read = TableRead(format="jdbc", options={"url": "jdbc:postgresql://host/db", "dbTable": "t"})
    reads = [OpenRead(read, "Old", spark_session.range(1))]
    for url, refused in (("jdbc:postgresql://host/db", ["New"]), ("jdbc:x://other", [])):
        write = TableWrite(format="jdbc", options={"url": url, "dbtable": "t"}, mode="overwrite")
        with open_session(RunnerConfig(), spark_session) as session:
            opened = OpenWrite(write=write, step="New", schema="", is_there=True, session=session)
            errors = check_overwrites(reads, [opened])
        assert [error.where for error in errors] == refused

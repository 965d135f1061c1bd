"""Spark tables that cannot be read or written, and pipelines that fail."""

import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_spark_runner.core.errors import (
    BundleFailedError,
    PipelineRefusedError,
    SparkJobError,
    TableError,
)
from beam_spark_runner.core.table_steps import TableRead, TableWrite
from beam_spark_runner.core.table_types import Column, schema_of
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark.driver.table_frames import open_frame
from beam_spark_runner.spark.driver.table_writes import open_write
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import harvest, run

pytestmark = pytest.mark.spark


def write_nothing_much(spark: Any, **arguments: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        made = p | beam.Create([{"amount": 1}])
        return {"written": made | WriteToSpark(schema="amount INT", **arguments)}

    harvest(spark, build)


def test_rows_that_do_not_fit_are_dead_letters(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | beam.Create([{"amount": 1}, {"amount": None}, {"amount": "much"}, {"amount": 4}])
        sink = WriteToSpark(path=str(tmp_path / "t"), schema="amount INT NOT NULL")
        good, bad = rows | sink.with_exception_handling()
        return {"good": good, "bad": bad}

    found = harvest(spark_session, build)
    assert [result.rows for result in found["good"]] == [2]
    assert sorted(pq.read_table(tmp_path / "t")["amount"].to_pylist()) == [1, 4]
    assert sorted(str(row["amount"]) for row, _ in found["bad"]) == ["None", "much"]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({"path": "out", "mode": "append"}, "parquet in .*/out is none of Delta or Iceberg"),
        (
            {"table": "missing", "mode": "append"},
            "the table missing is none of Delta",
        ),
        ({"path": "out"}, "the mode is error, but a streaming pipeline adds rows in each epoch"),
        ({"path": "out", "mode": "append", "keys": "id"}, "keys, by which rows replace others"),
    ],
)
def test_tables_that_a_stream_cannot_write(
    spark_session: Any, tmp_path: Path, target: dict[str, Any], problem: str
) -> None:
    if "path" in target:
        target = {**target, "path": str(tmp_path / target["path"])}

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | beam.Create([{"id": 1}])
        _ = rows | WriteToSpark(schema="id BIGINT", **target)
        return {}

    with pytest.raises(PipelineRefusedError, match=problem):
        harvest(spark_session, build, "--streaming")
    assert not (tmp_path / "out").exists()


def test_keys_are_only_for_streams(spark_session: Any, tmp_path: Path) -> None:
    with pytest.raises(PipelineRefusedError, match="keys, by which rows replace others, are for"):
        write_nothing_much(spark_session, path=str(tmp_path / "out"), keys=["amount"])


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        pytest.param({"table": "no_such_table"}, "no_such_table", id="table"),
        pytest.param({"path": "/no/such/path"}, "/no/such/path", id="path", marks=pytest.mark.rare),
        pytest.param(
            {"path": "/x", "format": "delta"},
            r"no connector for delta.*--spark_conf spark.jars.packages=io.delta:delta-spark_\S+",
            id="connector",
            marks=pytest.mark.rare,
        ),
        pytest.param(
            {
                "format": "jdbc",
                "options": {"url": "jdbc:postgresql://localhost/x", "dbtable": "y"},
            },
            r"no JDBC driver for postgresql.*spark.jars.packages=org.postgresql:postgresql:VERSION",
            id="driver",
            marks=pytest.mark.rare,
        ),
    ],
)
def test_what_cannot_be_read(spark_session: Any, read: dict[str, Any], problem: str) -> None:
    with pytest.raises(TableError, match=problem):
        harvest(spark_session, lambda p: {"read": p | ReadFromSpark(**read)})


def test_columns_that_cannot_come_in(spark_session: Any) -> None:
    problems = {
        "SELECT INTERVAL '1' MONTH AS month": "column month: Beam has no type for INTERVAL MONTH",
        "SELECT 1 AS a, 2 AS A": "column a: there are several of this name",
        "SELECT count(*) FROM range(3)": r"column count\(1\): .* rename it",
    }
    for query, problem in problems.items():
        read = ReadFromSpark(query=query)
        with pytest.raises(ValueError, match=problem):
            harvest(spark_session, lambda p, read=read: {"read": p | read})  # type: ignore[misc]


def test_another_schema_than_was_given_is_refused(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        query = "SELECT id, 'x' AS name FROM range(3)"
        return {"read": p | ReadFromSpark(query=query, schema="id INT, name STRING")}

    with pytest.raises(PipelineRefusedError, match="≠  id      INT           BIGINT") as raised:
        harvest(spark_session, build)
    shown = str(raised.value)
    assert "the query " in shown
    assert "has another schema than the pipeline" in shown
    assert "column  the pipeline  the table" in shown
    assert "name    STRING        STRING" in shown


@pytest.mark.parametrize("batches", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_a_null_where_the_given_schema_has_none(spark_session: Any, batches: bool) -> None:
    query = "SELECT IF(id = 1, NULL, id) AS price FROM range(2)"
    read = ReadFromSpark(query=query, schema="price BIGINT NOT NULL", batches=batches)
    with pytest.raises(BundleFailedError, match="column price: a row of the table has a null"):
        run(spark_session, lambda p: p | "Sales" >> read | beam.Map(lambda row: row.price))


@pytest.mark.parametrize(
    "read",
    [
        {"table": "no_such_table"},
        pytest.param({"path": "/no/such/path"}, marks=pytest.mark.rare),
    ],
)
def test_what_is_not_there_when_the_pipeline_runs(spark_session: Any, read: dict[str, Any]) -> None:
    """With a schema, nothing is looked up when the transform is applied."""
    (name,) = read.values()
    with pytest.raises(PipelineRefusedError, match=f"Mine/Read: .*{name}"):
        harvest(
            spark_session, lambda p: {"read": p | "Mine" >> ReadFromSpark(**read, schema="id INT")}
        )


def test_columns_are_checked_when_the_pipeline_runs(spark_session: Any) -> None:
    """As at a job server, whose clients have no Spark: the table has a column of no use to Beam."""
    spark_session.sql("SELECT 1 AS id, INTERVAL '1' MONTH AS month").createOrReplaceTempView("odd")
    read = TableRead(table="odd")
    with (
        open_session(RunnerConfig(), spark_session) as session,
        pytest.raises(TableError, match="Step: the table odd has columns that Beam cannot have: "),
    ):
        open_frame(read, session, "Step")


@pytest.mark.rare
def test_a_missing_connector_is_found_before_anything_runs(
    spark_session: Any, tmp_path: Path
) -> None:
    with pytest.raises(PipelineRefusedError, match="no connector for iceberg"):
        write_nothing_much(spark_session, path=str(tmp_path / "out"), format="iceberg")


def test_a_value_that_does_not_fit_names_step_and_column(
    spark_session: Any, tmp_path: Path
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | beam.Create([{"amount": 1 << 40}])
        out = str(tmp_path / "out")
        return {"written": rows | "Mine" >> WriteToSpark(schema="amount INT", path=out)}

    with pytest.raises(BundleFailedError, match="column amount: a value does not fit") as raised:
        harvest(spark_session, build)
    assert raised.value.step == "Mine"


def test_a_decimal_that_would_lose_digits(spark_session: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    frame = spark_session.sql("SELECT CAST(1.25 AS DECIMAL(10,2)) AS price")
    frame.write.parquet(out)

    def build(p: beam.Pipeline, price: str) -> dict[str, Any]:
        rows = p | beam.Create([{"price": Decimal(price)}])
        write = WriteToSpark(path=out, mode="append", schema="price DECIMAL(38,18)")
        return {"written": rows | "Mine" >> write}

    harvest(spark_session, lambda p: build(p, "2.5"))
    with pytest.raises(SparkJobError, match=r"Mine/Write: .*column price: a value does not fit"):
        harvest(spark_session, lambda p: build(p, "0.001"))
    stored = spark_session.read.parquet(out).collect()
    assert sorted(row.price for row in stored) == [Decimal("1.25"), Decimal("2.50")]


@pytest.mark.rare
@pytest.mark.connect
def test_a_frame_of_another_server_on_the_same_host_is_refused(connect_server: str) -> None:
    """It would be read from the pipeline's own server, which may have another table of its name."""
    from pyspark.sql.connect.session import SparkSession

    ours: Any = SparkSession.builder.remote(connect_server).create()
    theirs: Any = SparkSession(connection="sc://127.0.0.1:9")  # frames are asked nothing so far
    try:
        with pytest.raises(TableError, match="belongs to another Spark than that of the pipeline"):
            harvest(ours, lambda p: {"read": p | ReadFromSpark(dataframe=theirs.range(3))})
    finally:
        theirs.client.close()
        ours.stop()


@pytest.mark.rare
@pytest.mark.connect
def test_a_frame_of_another_spark_is_refused(spark_session: Any, connect_server: str) -> None:
    from pyspark.sql.connect.session import SparkSession

    theirs: Any = SparkSession.builder.remote(connect_server).create()
    try:
        with pytest.raises(TableError, match="belongs to another Spark than that of the pipeline"):
            harvest(spark_session, lambda p: {"read": p | ReadFromSpark(dataframe=theirs.range(3))})
    finally:
        theirs.stop()


def of_a_class_in(module: str) -> str:
    """Return the schema of a column whose type a class of Python defines, as Spark's JSON."""
    of_python = {"type": "udt", "pyClass": f"{module}.Type", "sqlType": "long"}
    return schema_of([Column("n", {**of_python, "serializedClass": ""}, True)])


@pytest.fixture
def named_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that nobody may import because a schema names it."""
    name = "module_of_a_schema"
    (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    assert name not in sys.modules


def test_schemas_that_name_classes_of_python(
    spark_session: Any, named_module: str, tmp_path: Path
) -> None:
    schema = of_a_class_in(named_module)
    (tmp_path / "some.csv").write_text("1\n")
    read = TableRead(path=str(tmp_path / "some.csv"), format="csv", schema=schema)
    write = TableWrite(path=str(tmp_path / "out"), format="parquet", schema=schema)
    with open_session(RunnerConfig(), spark_session) as session:
        with pytest.raises(TableError, match="reads: its schema has a type that a class of Python"):
            open_frame(read, session, "reads")
        with pytest.raises(TableError, match="writes: its schema has a type that a class of"):
            open_write(write, session, "writes")


def test_files_that_name_classes_of_python(
    spark_session: Any, named_module: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "file.parquet")
    metadata = {"org.apache.spark.sql.parquet.row.metadata": of_a_class_in(named_module)}
    pq.write_table(pa.table({"n": [1]}).replace_schema_metadata(metadata), path)
    with (
        open_session(RunnerConfig(), spark_session) as session,
        pytest.raises(TableError, match="column n: Beam has no type for UDT; cast it"),
    ):
        open_frame(TableRead(path=path, format="parquet"), session, "reads")

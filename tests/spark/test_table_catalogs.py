"""Tables and views that only the session of the program knows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.table_steps import TableWrite
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.driver.table_writes import OpenWrite
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import harvest, run

pytestmark = pytest.mark.spark
COMMITTER = "mapreduce.fileoutputcommitter.algorithm.version"


def test_a_view_of_the_program_is_read(spark_session: Any) -> None:
    spark_session.range(3).createOrReplaceTempView("beam_view")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(query="SELECT id + 1 AS id FROM beam_view")
        return {"read": rows | beam.Map(lambda row: row.id)}

    assert harvest(spark_session, build)["read"] == [1, 2, 3]


TABLE = "derby.APP.NUMBERS"


@pytest.fixture
def derby(spark_session: Any, tmp_path: Path) -> Iterator[None]:
    """A catalog ``derby``, which the program has set up, with an empty ``TABLE``."""
    java: Any = pyspark_internals.jvm()
    url = "jdbc:derby:memory:beam;create=true"
    java.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    catalog = "spark.sql.catalog.derby"
    settings = {
        catalog: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{catalog}.url": url,
        f"{catalog}.driver": java.java.sql.DriverManager.getDriver(url).getClass().getName(),
        f"{catalog}.password": "hidden",  # Spark shows it with stars
    }
    for key, value in settings.items():
        spark_session.conf.set(key, value)
    spark_session.sql(f"CREATE TABLE {TABLE} (ID INT)")
    yield
    spark_session.sql(f"DROP TABLE {TABLE}")
    for key in settings:
        spark_session.conf.unset(key)


def append(count: int) -> Callable[[beam.Pipeline], None]:
    def build(p: beam.Pipeline) -> None:
        rows = p | beam.Create([{"ID": n} for n in range(count)])
        _ = rows | WriteToSpark(table=TABLE, mode="append", schema="ID INT")

    return build


@pytest.mark.usefixtures("derby")
def test_a_catalog_that_the_program_has_set_up(spark_session: Any) -> None:
    """Pipelines run in separate threads, in which Spark knows no session by itself."""
    run(spark_session, append(3))
    run(spark_session, append(5))

    def read(p: beam.Pipeline) -> dict[str, Any]:
        return {"read": p | ReadFromSpark(table=TABLE) | beam.Map(lambda row: row.ID)}

    assert harvest(spark_session, read)["read"] == [0, 0, 1, 1, 2, 2, 3, 4]


@pytest.mark.usefixtures("derby")
def test_settings_of_the_program_are_those_of_its_pipelines(spark_session: Any) -> None:
    with open_session(RunnerConfig(), spark_session) as session:
        session.write_as_program()
        assert session.spark.conf.get("spark.sql.catalog.derby.password") == "hidden"


@pytest.mark.usefixtures("derby")
def test_what_a_failed_write_may_have_left(spark_session: Any) -> None:
    writes: list[tuple[dict[str, Any], bool]] = [
        ({"table": TABLE}, False),  # its partitions commit by themselves
        ({"table": "beam_files"}, True),
        ({"table": "beam_new"}, True),
        ({"path": "/x", "format": "orc"}, True),
        ({"path": "/x", "format": "orc", "options": {COMMITTER: "2"}}, False),
        ({"path": "/x", "format": "orc", "options": {COMMITTER: "2"}, "mode": "overwrite"}, True),
        ({"path": "/x", "format": "delta", "options": {COMMITTER: "2"}}, True),  # has its own
        ({"format": "jdbc"}, False),
    ]
    spark_session.range(1).write.mode("overwrite").saveAsTable("beam_files")
    try:
        for write, may_run_again in writes:
            what = TableWrite(**{"mode": "append", **write})
            with open_session(RunnerConfig(), spark_session) as session:
                opened = OpenWrite(
                    write=what, step="New", schema="", is_there=True, session=session
                )
                assert opened.may_run_again() == may_run_again, write
    finally:
        spark_session.sql("DROP TABLE beam_files")

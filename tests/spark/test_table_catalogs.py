"""Tables and views that only the session of the program knows."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.spark.harvest import harvest, run

pytestmark = pytest.mark.spark


def test_a_view_of_the_program_is_read(spark_session: Any) -> None:
    spark_session.range(3).createOrReplaceTempView("beam_view")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(query="SELECT id + 1 AS id FROM beam_view")
        return {"read": rows | beam.Map(lambda row: row.id)}

    assert harvest(spark_session, build)["read"] == [1, 2, 3]


def test_a_catalog_that_the_program_has_set_up(spark_session: Any, tmp_path: Path) -> None:
    """Pipelines run in threads of their own, in which Spark knows no session by itself."""
    java: Any = pyspark_internals.jvm()
    url = "jdbc:derby:memory:beam;create=true"
    java.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    catalog = "spark.sql.catalog.derby"
    settings = {
        catalog: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{catalog}.url": url,
        f"{catalog}.driver": java.java.sql.DriverManager.getDriver(url).getClass().getName(),
    }
    table = "derby.APP.NUMBERS"
    try:
        for key, value in settings.items():
            spark_session.conf.set(key, value)
        spark_session.sql(f"CREATE TABLE {table} (ID INT)")
        for count in (3, 5):

            def append(p: beam.Pipeline, count: int = count) -> None:
                rows = p | beam.Create([{"ID": n} for n in range(count)])
                _ = rows | WriteToSpark(table=table, mode="append", schema="ID INT")

            run(spark_session, append)

        def read(p: beam.Pipeline) -> dict[str, Any]:
            return {"read": p | ReadFromSpark(table=table) | beam.Map(lambda row: row.ID)}

        assert harvest(spark_session, read)["read"] == [0, 0, 1, 1, 2, 2, 3, 4]
    finally:
        for key in settings:
            spark_session.conf.unset(key)

"""Frames of rows of the engine."""

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from beam_spark_runner.core import routing
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_in
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.scheduling.attempts import Attempts, Report

SCHEMA = StructType(  # as text it would be parsed again, in the JVM, for each level
    [
        StructField("dest", IntegerType()),
        StructField("route", LongType()),
        StructField("order", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
"""See ``engine.rows.schema``."""


def collect_reports(frame: DataFrame) -> list[Report]:
    """Bring the reports among a frame's rows to the driver. Runs a Spark job."""
    return reports_of(bytes(row[0]) for row in coded_reports(frame).collect())


def coded_reports(frame: DataFrame) -> DataFrame:
    """Return the reports among a frame's rows, for ``reports_of``: one binary column."""
    return frame.filter(f"dest = {schema.REPORT}").select("value")


def collect_marks(frame: DataFrame) -> dict[int, Attempts]:
    """Return which attempts wrote the rows of a materialised frame. Runs a Spark job."""
    rows = frame.filter(f"dest = {schema.CONTROL}").select("value").collect()
    attempts = attempts_in(value for (value,) in rows)
    return {run: Attempts.of(ids) for run, ids in attempts.items()}


def spread_marks(frame: DataFrame, partitions: int) -> DataFrame:
    """Send the marks of materialised rows to all partitions of the next exchange.

    The Spark task that reads a block does it, along with the block's rows: a separate scan for
    the marks might read those of another attempt.
    """
    targets = routing.routes_to_partitions(routing.CONTROL_CODE, partitions)
    everywhere = ", ".join(f"{route}L" for route in targets)
    route = f"explode(if(dest = {schema.CONTROL}, array({everywhere}), array(route)))"
    return frame.selectExpr("dest", f"{route} as route", "`order`", "key", "value")

"""The cost of anchors for the Spark job of an epoch: planning, and a cached input per exchange.

Runs three levels that pass on a few rows, in local mode, alternately with and without anchors.
"""

import argparse
import statistics
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.exchange import exchange
from beam_spark_runner.spark.session.conf import session_settings
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.spark.versions import SparkVersion

LEVELS = 3
PARTITIONS = 2


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _levels(spark: SparkSession, anchor: Anchor | None) -> DataFrame:
    frame: DataFrame = spark.range(0, 100, 1, PARTITIONS).selectExpr(
        "1 as dest",
        "id as route",
        "0L as `order`",
        "cast(null as binary) as key",
        "cast('' as binary) as value",
    )
    for _ in range(LEVELS):
        frame = exchange(frame, PARTITIONS, (), reads_marks_first=True, anchor=anchor)
        frame = frame.mapInArrow(_pass_on, frames.SCHEMA)
    return frame


def main() -> None:
    """Print the median and the minimum of both times in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    spark = start_classic(f"local[{PARTITIONS}]", "anchors", {"spark.ui.enabled": "false"})
    for key, value in session_settings(SparkVersion.parse(spark.version)).items():
        spark.conf.set(key, value)
    frames = {
        "without": _levels(spark, None),
        "with": _levels(spark, Anchor(spark, PARTITIONS)),
    }
    took: dict[str, list[float]] = {name: [] for name in frames}
    for epoch in range(epochs + 5):
        for name, frame in frames.items():
            began = time.perf_counter()
            frame.filter(f"dest = {schema.REPORT}").select("value").collect()
            if epoch >= 5:  # code is compiled, workers are started
                took[name].append(1000 * (time.perf_counter() - began))
    for name, times in took.items():
        print(f"{name}: median {statistics.median(times):.0f} ms, least {min(times):.0f} ms")
    spark.stop()


if __name__ == "__main__":
    main()

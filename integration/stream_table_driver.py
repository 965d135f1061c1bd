"""The program that ``test_streams_into_tables`` kills around the write of an epoch to a table."""

import itertools
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.driver.epoch_tables import EpochTable
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import WriteToSpark
from integration.lakes import conf_in
from integration.streams import KEYS, Counts
from integration.strikes import kill

MOMENTS = ("committed", "amid", "written")
"""The epoch is committed; Spark writes the table; it has written it, and nothing has noted it."""
COUNT = 24
IDS = [1000 * key + number for key in range(KEYS) for number in range(COUNT)]


def _row_of(pair: tuple[str, int]) -> dict[str, int]:
    return {"id": 1000 * int(pair[0]) + pair[1]}


def main(
    options: Sequence[str], home: str, target: dict[str, Any], folder: str, moment: str, nth: int
) -> None:
    """Stream numbers into a table, and print those that it has at the end.

    Args:
        options: Of the pipeline.
        home: Where catalogs have their tables.
        target: Arguments of ``WriteToSpark``.
        folder: Where Spark writes the files of the table.
        moment: When the program is killed; empty: it is not.
        nth: At which write.
    """
    if moment:
        _dies(moment, nth, Path(folder))
    few = {"spark.databricks.delta.snapshotPartitions": "2"}
    spark = start_classic("local[2]", "lakes", {**conf_in(Path(home)), **few})
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark), options=PipelineOptions([*options]))
    keys = pipeline | beam.Create([(str(key), COUNT) for key in range(KEYS)])
    rows = keys | beam.ParDo(Counts()).with_output_types(tuple[str, int]) | beam.Map(_row_of)
    _ = rows | "table" >> WriteToSpark(schema="id BIGINT", mode="append", **target)
    pipeline.run().wait_until_finish()
    name = target.get("table") or f"{target['format']}.`{target['path']}`"
    print(sorted(row["id"] for row in spark.table(name).collect()))
    spark.stop()


def _dies(moment: str, nth: int, folder: Path) -> None:
    append = EpochTable.append
    times = itertools.count(1)

    def dying_append(*arguments: Any) -> None:
        is_last = next(times) == nth
        if is_last and moment == "committed":
            kill(os.getpid())
        if is_last and moment == "amid":
            before = _files(folder)
            threading.Thread(
                target=_kill_when_there_is_more, args=[folder, before], daemon=True
            ).start()
        append(*arguments)
        if is_last and moment in ("amid", "written"):
            kill(os.getpid())

    mock.patch.object(EpochTable, "append", dying_append).start()


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


def _kill_when_there_is_more(folder: Path, before: set[Path]) -> None:
    while not _files(folder) - before:
        time.sleep(0.001)
    kill(os.getpid())

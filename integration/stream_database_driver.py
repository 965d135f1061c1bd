"""The program that ``test_streams_into_databases`` kills around the write of an epoch."""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.driver import database_tables, epoch_rows
from beam_spark_runner.spark.driver.database_tables import DatabaseTable
from beam_spark_runner.spark.driver.epoch_sql import EpochSql
from beam_spark_runner.spark.driver.table_writes import OpenWrite
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import WriteToSpark
from integration.cluster import local_cluster
from integration.postgresql import DRIVER
from integration.streams import KEYS, Counts
from integration.strikes import executor_of_this_worker, kill
from tests.cli.programs import MARK

MOMENTS = ("committed", "amid", "waiting", "moved", "written")
"""The epoch is committed; a task writes rows; all rows wait; the transaction has moved them, and is
open; it has been committed, and nothing in the checkpoint notes it."""
EXECUTOR = "executor"
"""An executor is killed, on a cluster, when its task has written rows: the moment of this name."""
COUNT = 24
ROWS = [(1000 * key + number, key) for key in range(KEYS) for number in range(COUNT)]


def _row_of(pair: tuple[str, int]) -> dict[str, int]:
    return {"id": 1000 * int(pair[0]) + pair[1], "key": int(pair[0]), "last": pair[1]}


def main(
    options: Sequence[str],
    access: dict[str, str],
    arguments: dict[str, Any],
    moment: str,
    nth: int,
    command: Sequence[str],
) -> None:
    """Stream numbers into a table.

    Args:
        options: Of the pipeline.
        access: Options of Spark's source, without the password.
        arguments: Further arguments of ``WriteToSpark``.
        moment: When something happens; empty: nothing does.
        nth: At which write.
        command: Stops and starts the database then, with ``stop`` and ``start`` as arguments.
            Empty: the program is killed.
    """
    pid = os.getpid()

    def strike(*actions: str) -> None:
        if not command:
            kill(pid)
            return  # in a task, whose process lives a little longer
        # A server that it starts is no process of this program.
        others = {key: os.environ[key] for key in os.environ if key != MARK}
        for action in actions or ("stop", "start"):
            subprocess.run([*command, action], check=True, env=others)

    if moment:
        _strikes("away" if command and moment == "amid" else moment, nth, strike)
    access = {**access, "password": os.environ["PASSWORD"]}
    conf = {"spark.ui.enabled": "false", "spark.jars.packages": DRIVER}
    with _session(conf, is_cluster=moment == EXECUTOR) as spark:
        pipeline = beam.Pipeline(
            runner=SparkPortableRunner(spark), options=PipelineOptions([*options])
        )
        keys = pipeline | beam.Create([(str(key), COUNT) for key in range(KEYS)])
        rows = keys | beam.ParDo(Counts()).with_output_types(tuple[str, int]) | beam.Map(_row_of)
        schema = "id BIGINT, key BIGINT, last BIGINT"
        sink = WriteToSpark(
            format="jdbc", options=access, mode="append", schema=schema, **arguments
        )
        _ = rows | "table" >> sink
        pipeline.run().wait_until_finish()


@contextlib.contextmanager
def _session(conf: dict[str, str], *, is_cluster: bool) -> Iterator[Any]:
    if is_cluster:
        with local_cluster().session("databases", conf) as spark:
            yield spark
        return
    spark = start_classic("local[2]", "databases", conf)
    yield spark
    spark.stop()


def _strikes(moment: str, nth: int, strike: Callable[..., None]) -> None:
    times = itertools.count(1)
    append = DatabaseTable.append

    def counted_append(*arguments: Any) -> None:
        is_now = next(times) == nth
        if is_now and moment == "committed":
            strike()
        if is_now:
            with _within_append(moment, strike):
                append(*arguments)
        else:
            append(*arguments)
        if is_now and moment == "written":
            strike()

    mock.patch.object(DatabaseTable, "append", counted_append).start()


def _within_append(moment: str, strike: Callable[..., None]) -> Any:
    numbered_rows = epoch_rows.numbered_rows_of_epoch
    save, move, note = OpenWrite.save, DatabaseTable._move, EpochSql.note

    def dangerous_rows(*arguments: Any) -> Any:
        frame = numbered_rows(*arguments)
        flag = Path.cwd() / "executor-was-killed"

        def strike_after_a_batch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield batch
                if moment != EXECUTOR:
                    strike()
                elif not flag.exists():  # else it is the second attempt
                    flag.touch()
                    kill(executor_of_this_worker())

        return frame.mapInArrow(strike_after_a_batch, frame.schema)

    def dangerous_move(*arguments: Any) -> None:
        strike()
        move(*arguments)

    def dangerous_note(*arguments: Any) -> str:
        strike()
        return note(*arguments)

    def save_without_database(*arguments: Any) -> None:
        strike("stop")
        try:
            save(*arguments)
        finally:
            strike("start")

    if moment == "away":
        return mock.patch.object(OpenWrite, "save", save_without_database)
    if moment in ("amid", EXECUTOR):
        return mock.patch.object(database_tables, "numbered_rows_of_epoch", dangerous_rows)
    if moment == "waiting":
        return mock.patch.object(DatabaseTable, "_move", dangerous_move)
    if moment == "moved":
        return mock.patch.object(EpochSql, "note", dangerous_note)
    return contextlib.nullcontext()

"""The program that ``test_table_writes_killed`` kills around the write of a table."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_spark_runner.driving.stored_writes import StoredWrites
from beam_spark_runner.spark.driver.table_writes import OpenWrite
from beam_spark_runner.transforms import WriteToSpark
from integration.pipelines import counters

MOMENTS = ("begun", "amid", "written", "ended")
"""The write was committed as begun; Spark writes; Spark has written; the result was committed."""


class _Counted(beam.DoFn):  # type: ignore[misc]
    def process(self, id_: int) -> Iterator[dict[str, int]]:
        Metrics.counter("integration", "rows").inc()
        yield {"id": id_}


def main(
    options: Sequence[str],
    ids: Sequence[int],
    target: dict[str, Any],
    folder: str,
    out: str,
    moment: str | None,
) -> None:
    """Write rows to a table, and its result to a text file.

    Args:
        options: Of the pipeline.
        ids: Of the rows.
        target: Arguments of ``WriteToSpark``.
        folder: Where Spark writes the files of the table.
        out: The folder of the text file.
        moment: When the program is killed; None: it is not.
    """
    if moment is not None:
        _dies(moment, Path(folder))
    pipeline = beam.Pipeline(argv=[*options])
    rows = pipeline | beam.Create(ids) | beam.Reshuffle() | beam.ParDo(_Counted())
    written = rows | "table" >> WriteToSpark(schema="id BIGINT", **target)
    facts = written | "facts" >> beam.Map(lambda result: f"{result.written} {result.rows}")
    facts | beam.io.WriteToText(f"{out}/result")
    result = pipeline.run()
    result.wait_until_finish()
    print(counters(result))


def _dies(moment: str, folder: Path) -> None:
    save, end = OpenWrite._save, StoredWrites.end

    def dying_save(*arguments: Any) -> None:
        if moment == "begun":
            _kill()
        if moment == "amid":
            threading.Thread(target=_kill_when_there_are_files, args=[folder], daemon=True).start()
        save(*arguments)
        if moment in ("amid", "written"):
            _kill()

    def dying_end(*arguments: Any) -> None:
        end(*arguments)
        _kill()

    mock.patch.object(OpenWrite, "_save", dying_save).start()
    if moment == "ended":
        mock.patch.object(StoredWrites, "end", dying_end).start()


def _kill_when_there_are_files(folder: Path) -> None:
    while not any(folder.glob("_temporary/**/*.parquet")):
        time.sleep(0.001)
    _kill()


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it has survived")

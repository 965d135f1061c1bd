"""Streaming pipelines that write files, with programs that die while files get their names.

A module that executors import by its name.
"""

import enum
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.parquet
from apache_beam.io import fileio, tfrecordio
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import FixedWindows

from integration.streams import KEYS, Counts
from integration.strikes import DRIVER_PID, claim, kill

WINDOW_S = 8
SHARDS = 2
_RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "key", "type": "string"}, {"name": "number", "type": "long"}],
}


class Moment(enum.Enum):
    """What has become of the files of a window when the program dies."""

    BEFORE = "all of them have temporary names"
    HALF = "half of them have their names"
    AFTER = "all of them have their names, and nothing is committed"


class _DiesAtRenaming(beam.DoFn):  # type: ignore[misc]
    """Passes elements on. The first process that renames files kills the driver."""

    def __init__(self, marker: str, moment: Moment) -> None:
        self._marker, self._moment = marker, moment

    def setup(self) -> None:
        rename = FileSystems.rename
        if isinstance(rename, mock.Mock):  # this process has had this step
            return

        def renames(sources: list[str], targets: list[str]) -> None:
            if not claim(self._marker):
                rename(sources, targets)
                return
            count = {Moment.BEFORE: 0, Moment.HALF: len(sources) // 2}.get(self._moment)
            rename(sources[:count], targets[:count])
            kill(int(os.environ[DRIVER_PID]))
            kill(os.getpid())  # else the sink would continue as if all files had their names

        mock.patch.object(FileSystems, "rename", mock.Mock(side_effect=renames)).start()

    def process(self, element: Any) -> Iterator[Any]:
        yield element


class Sink(enum.Enum):
    """Beam's file sinks."""

    TEXT = "WriteToText"
    AVRO = "WriteToAvro"
    PARQUET = "WriteToParquet"
    TFRECORD = "WriteToTFRecord"
    FILES = "WriteToFiles, a file for each key"


def _writes(sink: Sink, folder: Path) -> beam.PTransform:
    prefix = str(folder / "out")
    record = beam.Map(lambda pair: {"key": pair[0], "number": pair[1]})
    match sink:
        case Sink.TEXT:
            return beam.Map(json.dumps) | beam.io.WriteToText(prefix, num_shards=SHARDS)
        case Sink.AVRO:
            return record | beam.io.WriteToAvro(prefix, _RECORD, num_shards=SHARDS)
        case Sink.PARQUET:
            schema = pa.schema([("key", pa.string()), ("number", pa.int64())])
            return record | beam.io.WriteToParquet(prefix, schema, num_shards=SHARDS)
        case Sink.TFRECORD:
            encode = beam.Map(lambda pair: json.dumps(pair).encode()).with_output_types(bytes)
            return encode | tfrecordio.WriteToTFRecord(prefix, num_shards=SHARDS)
        case Sink.FILES:
            return beam.Map(json.dumps) | fileio.WriteToFiles(
                str(folder),
                destination=lambda line: json.loads(line)[0],
                sink=lambda _: fileio.TextSink(),
                file_naming=fileio.destination_prefix_naming(),
            )


def pairs_in(sink: Sink, folder: Path) -> list[tuple[str, int]]:
    """Return what the files of a folder contain; those with temporary names do not count."""
    return sorted(
        (key, number)
        for path in folder.iterdir()
        if path.is_file()
        for key, number in _READERS[sink](path)
    )


def _in_text(path: Path) -> list[tuple[str, int]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _in_avro(path: Path) -> list[tuple[str, int]]:
    with path.open("rb") as file:
        rows: Any = fastavro.reader(file)
        return [(each["key"], each["number"]) for each in rows]


def _in_parquet(path: Path) -> list[tuple[str, int]]:
    rows = pyarrow.parquet.read_table(path).to_pylist()
    return [(each["key"], each["number"]) for each in rows]


def _in_tfrecord(path: Path) -> list[tuple[str, int]]:
    found = []
    with path.open("rb") as file:
        while (record := tfrecordio._TFRecordUtil.read_record(file)) is not None:
            found.append(tuple(json.loads(record)))
    return found


_READERS: dict[Sink, Callable[[Path], list[tuple[str, int]]]] = {
    Sink.TEXT: _in_text,
    Sink.AVRO: _in_avro,
    Sink.PARQUET: _in_parquet,
    Sink.TFRECORD: _in_tfrecord,
    Sink.FILES: _in_text,
}


def main(options: Sequence[str], sink: str, moment: str, marker: str, out: str, count: int) -> None:
    """Run a pipeline that writes ``count`` numbers of each key; die, or come to its end.

    Args:
        options: of the pipeline.
        sink: name of a ``Sink``.
        moment: name of a ``Moment``.
        marker: a file; where it exists, the program does not die.
        out: the folder of the files.
        count: a multiple of ``WINDOW_S``.
    """
    os.environ[DRIVER_PID] = str(os.getpid())  # Spark's workers inherit it
    with beam.Pipeline(argv=[*options]) as p:
        (
            p
            | beam.Create([(f"key {n}", count) for n in range(KEYS)])
            | beam.ParDo(Counts()).with_output_types(tuple[str, int])
            | "Die" >> beam.ParDo(_DiesAtRenaming(marker, Moment[moment]))
            | beam.WindowInto(FixedWindows(WINDOW_S))
            | "Write" >> _writes(Sink[sink], Path(out))
        )

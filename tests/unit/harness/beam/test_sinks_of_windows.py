"""Beam's file sinks in streaming pipelines: repeated last steps, and several files at a time."""

from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.io import avroio, parquetio, textio
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.transforms.window import IntervalWindow

from beam_spark_runner.harness.beam.file_sinks import mend_file_sinks


@pytest.mark.parametrize("template", ["-W-SSSSS-of-NNNNN", "-V-SSSSS-of-NNNNN", "-SSSSS-of-NNNNN"])
def test_files_that_have_their_names_are_found(tmp_path: Path, template: str) -> None:
    mend_file_sinks()
    sink = textio._TextSink(str(tmp_path / "out [1]"), ".txt", shard_name_template=template)
    window, temporary = IntervalWindow(0, 8), tmp_path / "temporary"
    temporary.mkdir()
    written = [str(temporary / name) for name in "abc"]
    names = [Path(sink._get_final_name(number, 3, window)) for number in range(3)]
    for name in written[1:]:
        Path(name).write_text(f"lines of {name}")
    names[0].write_text("renamed already")
    names[1].write_text(f"lines of {written[1]}")  # copied, as object stores do
    (tmp_path / "out [1]-[8.0, 16.0)-00000-of-00003.txt").write_text("of another window")
    sources, targets, copied, skipped = sink._check_state_for_finalize_write(written, 3, window)
    assert (sources, targets) == (written[2:], [str(names[2])])
    assert (copied, skipped) == (written[1:2], 1)


_FIELDS = [{"name": "number", "type": "long"}]


def _avro(path: str) -> tuple[FileBasedSink, Any, Any]:
    schema = {"type": "record", "name": "Number", "fields": _FIELDS}
    sink = avroio.WriteToAvro(path, schema)._sink_provider(schema)

    def numbers_in(file: Path) -> list[int]:
        with file.open("rb") as stream:
            rows: Any = fastavro.reader(stream)
            return [row["number"] for row in rows]

    return sink, lambda number: {"number": number}, numbers_in


def _parquet(path: str) -> tuple[FileBasedSink, Any, Any]:
    schema = pa.schema([("number", pa.int64())])
    sink = parquetio.WriteToParquet(path, schema)._sink

    def numbers_in(file: Path) -> list[int]:
        numbers: list[int] = pyarrow.parquet.read_table(file)["number"].to_pylist()
        return numbers

    return sink, lambda number: pa.table([[number]], schema), numbers_in


@pytest.mark.parametrize("kind", [_avro, _parquet])
def test_files_that_are_open_at_the_same_time(tmp_path: Path, kind: Any) -> None:
    mend_file_sinks()
    sink, record_of, numbers_in = kind(str(tmp_path / "out"))
    writers = [sink.open_writer(str(tmp_path), name) for name in ("odd", "even")]
    for number in range(10):
        writers[1 - number % 2].write(record_of(number))
    paths = [Path(writer.close()) for writer in writers]
    assert [numbers_in(path) for path in paths] == [[1, 3, 5, 7, 9], [0, 2, 4, 6, 8]]

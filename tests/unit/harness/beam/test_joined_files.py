"""Small files of one write are joined, whichever attempt of the last step comes to do it."""

import bz2
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.io import avroio, iobase, parquetio, textio, tfrecordio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_spark_runner.harness.beam import file_sinks
from beam_spark_runner.harness.beam.file_sinks import patch_file_sinks

patch_file_sinks()


class Write:
    """A write of a few lines, of which each was a bundle."""

    def __init__(self, sink: Any, elements: Any = ("a", "b", "c")) -> None:
        self.sink = sink
        self.folder = sink.initialize_write()
        self.results = []
        for number, each in enumerate(elements):
            writer = sink.open_writer(self.folder, f"{number:032x}")
            writer.write(each)
            self.results.append(writer.close())

    def prepare(self) -> None:
        iobase._pre_finalize(None, self.sink, self.folder, reversed(self.results))

    def finalize(self) -> list[str]:
        results = reversed(self.results)  # in no order
        finalized = iobase._finalize_write(None, self.sink, self.folder, results, 1, None)
        return [Path(each.value).name for each in finalized]

    def run(self) -> list[str]:
        self.prepare()
        return self.finalize()


def text(folder: Path, *args: Any, **settings: Any) -> Any:
    return textio._TextSink(str(folder / "out"), *args, **settings)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_small_files_become_one(tmp_path: Path) -> None:
    assert Write(text(tmp_path)).run() == ["out-00000-of-00001"]
    (file,) = tmp_path.iterdir()  # the temporary folder is removed, too
    assert file.read_text() == "a\nb\nc\n"


@pytest.mark.parametrize("module", [gzip, bz2])
@pytest.mark.parametrize("by_suffix", [True, False])
def test_compressed_files(tmp_path: Path, module: Any, by_suffix: bool) -> None:
    suffix, kind = {
        gzip: (".gz", CompressionTypes.GZIP),
        bz2: (".bz2", CompressionTypes.BZIP2),
    }[module]
    settings = {"file_name_suffix": suffix} if by_suffix else {"compression_type": kind}
    Write(text(tmp_path, **settings)).run()
    (file,) = tmp_path.iterdir()
    assert module.decompress(file.read_bytes()) == b"a\nb\nc\n"


def test_records_of_tensorflow(tmp_path: Path) -> None:
    sink = tfrecordio._TFRecordSink(
        str(tmp_path / "out"), BytesCoder(), "", 0, None, CompressionTypes.AUTO
    )
    Write(sink, (b"a", b"b")).run()
    (file,) = tmp_path.iterdir()
    with file.open("rb") as opened:
        read = [tfrecordio._TFRecordUtil.read_record(opened) for _ in range(3)]
    assert read == [b"a", b"b", None]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_shards": 3},
        {"header": "name", "compression_type": CompressionTypes.GZIP},
        {"max_records_per_shard": 100},
        {"max_bytes_per_shard": 100},
        {"compression_type": CompressionTypes.DEFLATE},
        {"shard_name_template": "-SSSSS"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_files_that_stay_apart(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert len(Write(text(tmp_path, **settings)).run()) == 3
    assert len(names_in(tmp_path)) == 3


class Lines(textio._TextSink):  # type: ignore[misc]
    """A sink of a user."""


def test_files_of_other_sinks_stay_apart(tmp_path: Path) -> None:
    assert len(Write(Lines(str(tmp_path / "out"))).run()) == 3


@pytest.mark.parametrize(
    ("settings", "content"),
    [
        ({"header": "né"}, "né\na\nb\nc\n"),
        ({"footer": "end"}, "a\nb\nc\nend\n"),
        ({"header": "{", "footer": "}", "append_trailing_newlines": False}, "{abc}"),
        ({"header": "", "footer": ""}, "\na\nb\nc\n\n"),
    ],
)
def test_a_header_and_a_footer_are_written_once(
    tmp_path: Path, settings: dict[str, Any], content: str
) -> None:
    assert Write(text(tmp_path, **settings)).run() == ["out-00000-of-00001"]
    (file,) = tmp_path.iterdir()
    assert file.read_text() == content


RECORDS = [{"n": 1, "of": {"a": "x"}}, {"n": 2, "of": {"b": "y"}}, {"n": 3, "of": {"b": "z"}}]
AVRO = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "n", "type": "int"},
        {
            "name": "of",
            "type": [
                {"type": "record", "name": name, "fields": [{"name": name, "type": "string"}]}
                for name in "ab"
            ],
        },
    ],
}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_blocks_of_avro(tmp_path: Path, codec: str) -> None:
    sink = avroio._FastAvroSink(str(tmp_path / "out"), AVRO, codec, "", 0, None, None, None)
    assert Write(sink, RECORDS).run() == ["out-00000-of-00001"]
    (file,) = tmp_path.iterdir()
    with file.open("rb") as opened:
        reader = fastavro.reader(opened)
        assert (list(reader), reader.codec) == (RECORDS, codec)


def parquet(folder: Path, type_: pa.DataType, **settings: Any) -> Any:
    given = {"codec": "snappy", "use_deprecated_int96_timestamps": False, **settings}
    return parquetio._ParquetSink(
        str(folder / "out"),
        pa.schema([("n", type_)]),
        use_compliant_nested_type=True,
        file_name_suffix="",
        num_shards=0,
        shard_name_template=None,
        mime_type="application/x-parquet",
        triggering_frequency=0,
        **given,
    )


ROWS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, None]),
    (pa.large_string(), ["a", "b"]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", "a"]),
    (pa.list_(pa.struct([("a", pa.duration("ns"))])), [None, []]),
    (pa.timestamp("us", tz="Europe/Paris"), [1, 253_402_300_799_000_000]),
    (pa.decimal128(38, 3), [None, Decimal("1.125")]),
]


def tables(sink: Any, rows: list[Any]) -> list[pa.Table]:
    (field,) = sink._schema
    return [pa.table([pa.array([row], field.type)], schema=sink._schema) for row in rows]


@pytest.mark.parametrize(("type_", "rows"), ROWS, ids=lambda value: str(value)[:20])
def test_row_groups_of_parquet(tmp_path: Path, type_: pa.DataType, rows: list[Any]) -> None:
    sink = parquet(tmp_path, type_)
    written = tables(sink, rows)
    assert Write(sink, written).run() == ["out-00000-of-00001"]
    (file,) = tmp_path.iterdir()
    read = pq.read_table(file)
    assert read.equals(pa.concat_tables(written))
    assert pq.read_metadata(file).row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.parametrize(
    ("type_", "settings"),
    [
        pytest.param(
            pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}, id="read as nanoseconds"
        ),
        pytest.param(pa.timestamp("s"), {}, id="read as milliseconds"),
    ],
)
def test_row_groups_that_are_read_with_another_type_stay_apart(
    tmp_path: Path, type_: pa.DataType, settings: dict[str, Any]
) -> None:
    sink = parquet(tmp_path, type_, **settings)
    assert len(Write(sink, tables(sink, [0, 1])).run()) == 2


def test_large_files_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sinks, "_MAX_JOINED_BYTES", 6)
    assert len(Write(text(tmp_path)).run()) == 1
    assert len(Write(text(tmp_path), ("a", "b", "cd")).run()) == 3
    monkeypatch.setattr(file_sinks, "_MAX_JOINED_FILES", 2)
    assert len(Write(text(tmp_path)).run()) == 3


def test_a_last_step_that_is_repeated(tmp_path: Path) -> None:
    """It was interrupted before the renaming, before the deletion, within it, or after it."""
    write = Write(text(tmp_path))
    write.prepare()
    Path(f"{write.results[0]}~joined").write_text("half")
    assert write.finalize() == ["out-00000-of-00001"]
    (file,) = tmp_path.iterdir()
    Path(write.folder).mkdir()
    for each in write.results[1:]:
        Path(each).write_text("?")
    for _ in range(2):
        assert write.finalize() == [file.name]
        assert file.read_text() == "a\nb\nc\n"


def test_a_repeated_last_step_does_not_join_what_another_version_renames(tmp_path: Path) -> None:
    write = Write(text(tmp_path))
    write.prepare()
    FileSystems.rename(write.results[:1], [str(tmp_path / "out-00000-of-00003")])
    (tmp_path / "out-00000-of-00001").write_text("older")
    assert len(write.finalize()) == 3


def test_a_file_of_an_earlier_pipeline_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    older = tmp_path / "out-00000-of-00001"
    older.write_text("older")
    write = Write(text(tmp_path))
    write.prepare()
    assert not older.exists()
    for each in write.results:
        Path(each).unlink()
    with pytest.raises(OSError, match="do not exist"):
        write.finalize()

"""Beam's own sources and sinks."""

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.io import avroio, fileio, iobase, parquetio, tfrecordio
from apache_beam.io.range_trackers import OffsetRangeTracker
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import REUSED_PROCESS, SPREAD, harvest, partition_of_task, run

LINES = [f"line {n}" for n in range(3000)]


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="embedded"),
        pytest.param(REUSED_PROCESS, marks=[pytest.mark.grpc, pytest.mark.rare]),
    ],
)
def test_relative_paths(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """They are the program's, wherever Spark was started, and harnesses for earlier pipelines."""
    run(spark_session, lambda p: p | beam.Create([1]), *flags)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("a\nb\n")
    monkeypatch.chdir(tmp_path)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        read = p | "read" >> beam.io.ReadFromText("in/*.txt")
        read | "write" >> beam.io.WriteToText("out/lines", num_shards=1)
        return {"read": read, "opened": read | beam.Map(lambda _: Path("in/lines.txt").exists())}

    found = harvest(spark_session, build, *flags)
    assert found["read"] == ["a", "b"]
    assert found["opened"] == [True, True]
    assert [path.name for path in tmp_path.glob("out/*")] == ["lines-00000-of-00001"]


def test_a_program_whose_folder_is_gone(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert harvest(spark_session, lambda p: {"all": p | beam.Create([1, 2])})["all"] == [1, 2]


def test_text(spark_session: Any, tmp_path: Path) -> None:
    for part in range(3):
        lines = LINES[part * 1000 : (part + 1) * 1000]
        (tmp_path / f"in-{part}.txt").write_text("\n".join(lines) + "\n")
    with gzip.open(tmp_path / "packed.gz", "wt") as packed:
        packed.write("\n".join(LINES))
    (tmp_path / "empty.txt").touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pattern = str(tmp_path / "in-*.txt")
        read = p | "read" >> beam.io.ReadFromText(pattern)
        read | "sharded" >> beam.io.WriteToText(str(tmp_path / "sharded"), num_shards=3)
        read | "free" >> beam.io.WriteToText(str(tmp_path / "free"), ".out")
        read | "single" >> beam.io.WriteToText(str(tmp_path / "single"), shard_name_template="")
        read | "zipped" >> beam.io.WriteToText(str(tmp_path / "zipped"), ".gz", num_shards=2)
        nothing = read | beam.Filter(lambda _: False)
        nothing | "nothing" >> beam.io.WriteToText(str(tmp_path / "nothing"), header="head")
        return {
            "read": read,
            "gz": p | "gz" >> beam.io.ReadFromText(str(tmp_path / "packed.gz")),
            "empty": p | "empty" >> beam.io.ReadFromText(str(tmp_path / "empty.txt")),
            "all": p | beam.Create([pattern] * 2) | beam.io.ReadAllFromText(),
            "matched": p
            | fileio.MatchFiles(pattern)
            | fileio.ReadMatches()
            | beam.Map(lambda file: (file.metadata.path[-8:], len(file.read_utf8().splitlines()))),
        }

    found = harvest(spark_session, build, SPREAD)
    assert found["read"] == found["gz"] == sorted(LINES)
    assert found["all"] == sorted(LINES * 2)
    assert found["empty"] == []
    assert found["matched"] == [(f"in-{part}.txt", 1000) for part in range(3)]
    assert len(found.partitions("read")) > 1
    for name, shards in (("sharded", {3}), ("free", {1}), ("single", {1})):
        files = list(tmp_path.glob(f"{name}*"))
        assert len(files) in shards, name
        written = [line for file in files for line in file.read_text().splitlines()]
        assert sorted(written) == sorted(LINES), name
    zipped = list(tmp_path.glob("zipped*.gz"))
    assert len(zipped) == 2
    unzipped = [
        line for file in zipped for line in gzip.decompress(file.read_bytes()).decode().splitlines()
    ]
    assert sorted(unzipped) == sorted(LINES)
    assert [file.read_text() for file in tmp_path.glob("nothing*")] == ["head\n"]
    assert not list(tmp_path.glob("beam-temp*"))


def test_binary_formats(spark_session: Any, tmp_path: Path) -> None:
    records = [{"name": f"n{n}", "age": n} for n in range(2000)]
    avro_schema = {
        "type": "record",
        "name": "Person",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
    }
    arrow_schema = pa.schema([("name", pa.string()), ("age", pa.int64())])

    def write(p: beam.Pipeline) -> None:
        made = p | beam.Create(records)
        made | "avro" >> avroio.WriteToAvro(str(tmp_path / "a"), avro_schema, use_fastavro=True)
        made | "parquet" >> parquetio.WriteToParquet(str(tmp_path / "p"), arrow_schema)
        names = made | beam.Map(lambda record: record["name"].encode())
        names | "tfrecord" >> tfrecordio.WriteToTFRecord(str(tmp_path / "t"))
        made | "dynamic" >> fileio.WriteToFiles(
            str(tmp_path / "w"),
            destination=lambda record: "old" if record["age"] > 999 else "young",
            sink=lambda dest: Lines(),
            file_naming=fileio.destination_prefix_naming(),
        )

    def read(p: beam.Pipeline) -> dict[str, Any]:
        return {
            "avro": p | avroio.ReadFromAvro(str(tmp_path / "a*")) | "1" >> beam.Map(as_pair),
            "parquet": p
            | parquetio.ReadFromParquet(str(tmp_path / "p*"))
            | "2" >> beam.Map(as_pair),
            "tfrecord": p | tfrecordio.ReadFromTFRecord(str(tmp_path / "t*")),
        }

    run(spark_session, write, SPREAD)
    for prefix in "apt":
        assert len(list(tmp_path.glob(f"{prefix}*"))) == 1, prefix  # small files, which are joined
    found = harvest(spark_session, read, SPREAD)
    pairs = sorted((record["name"], record["age"]) for record in records)
    assert found["avro"] == found["parquet"] == pairs
    assert found["tfrecord"] == sorted(str(record["name"]).encode() for record in records)
    for name, ages in (("young", range(1000)), ("old", range(1000, 2000))):
        files = (tmp_path / "w").glob(f"{name}*")
        written = [int(line) for file in files for line in file.read_text().split()]
        assert sorted(written) == list(ages)
    assert not [path for path in tmp_path.rglob("*") if "temp" in path.name]


def as_pair(record: dict[str, Any]) -> tuple[str, int]:
    return record["name"], record["age"]


def refuse_13(number: int) -> int:
    if number == 13:
        raise ValueError("no 13")
    return number


class RefusingSink(fileio.TextSink):  # type: ignore[misc]
    def write(self, record: str) -> None:
        if record == "13":
            self._fh.close()  # Beam does not close it
        refuse_13(int(record))
        super().write(record)


class RefusingCoder(beam.coders.StrUtf8Coder):  # type: ignore[misc]
    def encode(self, value: str) -> bytes:
        refuse_13(int(value))
        return bytes(super().encode(value))


@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.rare
def test_windowed_writes_that_fail_leave_no_files(
    spark_session: Any, tmp_path: Path, shards: int
) -> None:
    """Beam writes what is unbounded by declaration in steps of its own."""

    def build(p: beam.Pipeline) -> None:
        ticks = p | PeriodicImpulse(0, 30, 1, apply_windowing=False)
        lines = ticks | beam.Map(lambda second: str(int(second)))
        windowed = lines | beam.WindowInto(FixedWindows(10))
        path = str(tmp_path / "out" / "x")
        windowed | beam.io.WriteToText(path, num_shards=shards, coder=RefusingCoder())

    with pytest.raises(BundleFailedError, match="no 13"):
        run(spark_session, build)
    assert (tmp_path / "out").exists()
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "where", [pytest.param("before the writes", marks=pytest.mark.rare), "in a sink"]
)
def test_a_pipeline_that_fails_leaves_no_files(
    spark_session: Any, tmp_path: Path, where: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = (
            p
            | beam.Create(range(50))
            | "maybe" >> beam.Map(refuse_13 if where == "before the writes" else int)
        )
        lines = numbers | "lines" >> beam.Map(str)
        sink = RefusingSink() if where == "in a sink" else fileio.TextSink()
        lines | "dynamic" >> fileio.WriteToFiles(
            str(tmp_path / "dynamic"), sink=lambda _: sink, shards=3
        )
        if where == "in a sink":
            return
        lines | "free" >> beam.io.WriteToText(str(tmp_path / "free" / "x"))
        lines | "sharded" >> beam.io.WriteToText(str(tmp_path / "sharded" / "x"), num_shards=3)
        (
            numbers
            | "rows" >> beam.Map(lambda n: {"n": n})
            | parquetio.WriteToParquet(
                str(tmp_path / "parquet" / "x"), pa.schema([("n", pa.int64())])
            )
        )

    with pytest.raises(BundleFailedError, match="no 13"):
        run(spark_session, build)
    left = [path for path in tmp_path.rglob("*") if path.is_file() or "temp" in path.name]
    assert left == []


class Lines(fileio.FileSink):  # type: ignore[misc]
    def open(self, handle: Any) -> None:
        self._handle = handle

    def write(self, record: dict[str, Any]) -> None:
        self._handle.write(f"{record['age']}\n".encode())

    def flush(self) -> None:
        pass


class Numbers(iobase.BoundedSource):  # type: ignore[misc]
    """Reads the numbers of a range; says from which bundle each came."""

    def __init__(self, count: int, splits: int) -> None:
        self._count, self._splits = count, splits

    def estimate_size(self) -> int:
        return self._count * 1_000_000

    def get_range_tracker(self, start: int | None, stop: int | None) -> Any:
        return OffsetRangeTracker(start or 0, self._count if stop is None else stop)

    def split(self, desired: int, start: int | None = None, stop: int | None = None) -> Any:
        size = self._count // self._splits
        for begin in range(0, self._count, size):
            yield iobase.SourceBundle(size * 1_000_000, self, begin, begin + size)

    def read(self, tracker: Any) -> Iterator[tuple[int, int]]:
        position = tracker.start_position()
        while tracker.try_claim(position):
            yield position, partition_of_task()
            position += 1


def test_a_custom_source_is_split_and_spread(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {
            "many": p | "many" >> beam.io.Read(Numbers(1000, 20)),
            "one": p | "one" >> beam.io.Read(Numbers(10, 1)),
        }

    found = harvest(spark_session, build, SPREAD)
    assert [n for n, _ in found["many"]] == list(range(1000))
    by_task = Counter(task for _, task in found["many"]).values()
    assert len(by_task) > 1
    # Equal splits are shared out equally.
    assert max(by_task) - min(by_task) <= 50
    assert [n for n, _ in found["one"]] == list(range(10))


def test_a_file_that_is_not_there(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> None:
        strict = fileio.MatchAll(fileio.EmptyMatchTreatment.DISALLOW)
        p | beam.Create([str(tmp_path / "none")]) | "match" >> strict

    with pytest.raises(BundleFailedError, match=r"Empty match for pattern .*none") as caught:
        run(spark_session, build)
    assert caught.value.step == "match"


def test_a_few_elements_are_one_file(spark_session: Any, tmp_path: Path) -> None:
    """Although all cores have written some."""

    def write(p: beam.Pipeline) -> None:
        elements = p | beam.Create(range(40)) | beam.Map(str)
        elements | beam.io.WriteToText(str(tmp_path / "lines"), file_name_suffix=".txt")

    run(spark_session, write)
    (file,) = tmp_path.iterdir()
    assert file.name == "lines-00000-of-00001.txt"
    assert sorted(map(int, file.read_text().split())) == [*range(40)]

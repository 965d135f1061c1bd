"""Beam's sinks under tasks that fail and run again: each element is in one final file, once."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.rare]

SCRIPT = """
    import json, uuid
    import pyarrow as pa
    from apache_beam.io import avroio, fileio, parquetio, tfrecordio
    from apache_beam.transforms.window import FixedWindows, TimestampedValue

    class Flaky(beam.DoFn):
        '''Fails once for each name, in the middle of a bundle; others' files are open then.'''
        def __init__(self, name):
            self._name = name

        def process(self, n):
            if n in (30, 70) and not os.path.exists(f"failed-{self._name}-{n}"):
                open(f"failed-{self._name}-{n}", "x").close()
                raise ValueError("the first attempt fails")
            yield n

    class FlakyLines(fileio.TextSink):
        def write(self, line):
            super().write(line)
            if line == "55" and not os.path.exists("failed-sink"):
                open("failed-sink", "x").close()
                raise ValueError("the first attempt fails")

    SCHEMA = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}

    with beam.Pipeline(argv=OPTIONS) as p:
        numbers = p | beam.Create(range(100)) | "before" >> beam.ParDo(Flaky("before"))
        lines = numbers | "lines" >> beam.Map(str)
        rows = numbers | "rows" >> beam.Map(lambda n: {"n": n})
        lines | "free" >> beam.io.WriteToText("out/free/x")
        lines | "sharded" >> beam.io.WriteToText("out/sharded/x", num_shards=3)
        rows | parquetio.WriteToParquet("out/parquet/x", pa.schema([("n", pa.int64())]))
        rows | avroio.WriteToAvro("out/avro/x", SCHEMA, num_shards=2)
        lines | "b" >> beam.Map(str.encode) | tfrecordio.WriteToTFRecord("out/tfrecord/x")
        timed = numbers | "timed" >> beam.Map(lambda n: TimestampedValue(str(n), n))
        timed | beam.WindowInto(FixedWindows(50)) | "dynamic" >> fileio.WriteToFiles(
            "out/dynamic",
            destination=lambda line: "odd" if int(line) % 2 else "even",
            sink=lambda destination: FlakyLines(),
            file_naming=fileio.destination_prefix_naming(".txt"),
        )
        timed | "in one" >> fileio.WriteToFiles("out/single", shards=1, max_writers_per_bundle=0)
        # After the exchange in front of the sharded writes, and in the same task.
        spread = lines | "pair" >> beam.Map(lambda line: (int(line) % 3, int(line)))
        spread | beam.GroupByKey() | beam.FlatMap(lambda kv: kv[1]) | beam.ParDo(Flaky("grouped"))

    def read(pipeline, name, source, field=None):
        def keep(n):
            with open("read.txt", "a") as file:
                file.write(json.dumps([name, int(n)]) + "\\n")
        return pipeline | name >> source | f"{name} n" >> beam.Map(
            lambda each: each[field] if field else each) | f"keep {name}" >> beam.Map(keep)

    with beam.Pipeline(argv=OPTIONS) as p:
        for name in ("free", "sharded"):
            read(p, name, beam.io.ReadFromText(f"out/{name}/x*"))
        read(p, "dynamic", beam.io.ReadFromText("out/dynamic/*.txt"))
        read(p, "single", beam.io.ReadFromText("out/single/*-*"))
        read(p, "parquet", parquetio.ReadFromParquet("out/parquet/x*"), "n")
        read(p, "avro", avroio.ReadFromAvro("out/avro/x*"), "n")
        read(p, "tfrecord", tfrecordio.ReadFromTFRecord("out/tfrecord/x*"))
    """


def test_tasks_that_fail_and_run_again_double_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, SCRIPT, "--spark_master_url=local[2,6]")
    assert ended.code == 0, ended.err
    failed = {path.name for path in tmp_path.glob("failed-*")}
    assert failed == {
        *(f"failed-{step}-{n}" for step in ("before", "grouped") for n in (30, 70)),
        "failed-sink",
    }
    found: dict[str, list[int]] = {}
    for line in (tmp_path / "read.txt").read_text().splitlines():
        name, number = json.loads(line)
        found.setdefault(name, []).append(number)
    assert len(found) == 7
    for name, numbers in found.items():
        assert sorted(numbers) == list(range(100)), name
    out = tmp_path / "out"
    for joined in ("free", "parquet"):  # of several bundles
        assert len(list(out.glob(f"{joined}/*"))) == 1
    assert len(list(out.glob("sharded/*"))) == 3
    assert len(list(out.glob("avro/*"))) == 2
    assert len(list(out.glob("dynamic/*.txt"))) == 4  # two destinations in two windows
    # WriteToFiles leaves the temporary files of failed attempts, whatever the runner.
    assert [
        path for path in out.rglob("*temp*") if path.parent.name not in ("dynamic", "single")
    ] == []

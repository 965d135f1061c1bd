"""A process that runs one pipeline after another gathers nothing."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.rare, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PROGRAM = """
    import gc, json, os, sys, threading, time
    import apache_beam as beam
    import psutil
    from pyspark import SparkContext
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.pvalue import AsDict
    from apache_beam.transforms.userstate import CombiningValueStateSpec

    class Count(beam.DoFn):
        TOTAL = CombiningValueStateSpec("total", sum)

        def process(self, pair, total=beam.DoFn.StateParam(TOTAL)):
            total.add(1)
            yield total.read()

    def grouped(pairs, number):
        return pairs | beam.GroupByKey()

    def combined(pairs, number):
        return pairs | beam.CombinePerKey(sum) | beam.Map(str)

    def stateful(pairs, number):
        return pairs | beam.ParDo(Count())

    def looked_up(pairs, number):
        table = pairs.pipeline | "table" >> beam.Create([(each, "x") for each in range(number)])
        return pairs | beam.Map(lambda pair, table: table.get(pair[1]), AsDict(table))

    def written(pairs, number):
        return pairs | beam.Map(str) | beam.io.WriteToText(f"{sys.argv[1]}/{number}")

    def failing(pairs, number):
        return pairs | beam.Map(lambda pair: pair[1] / 0)

    SHAPES = [grouped, combined, stateful, looked_up, written, failing]

    def run(number):
        options = PipelineOptions(
            ["--runner=SparkPortableRunner", "--spark_master_url=local[2]", "--progress=off",
             f"--spark_conf=spark.sql.files.maxRecordsPerFile={number + 1}",
             f"--job_name=j{number}"]
        )
        shape = SHAPES[number % len(SHAPES)]
        try:
            with beam.Pipeline(options=options) as pipeline:
                pairs = pipeline | beam.Create([("a", 1), ("b", number)])
                for step in range(number % 7):
                    pairs |= f"step {step}" >> beam.Map(lambda pair: pair)
                shape(pairs, number)
        except ZeroDivisionError:
            assert shape is failing
        else:
            assert shape is not failing

    def files_in(folder):
        return sum(len(files) for _, _, files in os.walk(folder))

    def measure():
        gc.collect()
        me = psutil.Process()
        jvm, = [each for each in me.children() if "java" in each.name()]
        return {
            "threads": threading.active_count(),
            "descriptors": me.num_fds(),
            "processes": len(me.children(recursive=True)),
            "threads of the JVM": jvm.num_threads(),
            "descriptors of the JVM": jvm.num_fds(),
            "files": files_in(os.environ["TMPDIR"]),
            "memory": me.memory_info().rss,
            "variables": len(os.environ),
            "import path": len(sys.path),
        }

    def collect_garbage():
        # Spark removes the files of shuffles that nothing refers to any more.
        SparkContext._active_spark_context._jvm.System.gc()

    for number in range(10):
        run(number)
    first = measure()
    for number in range(10, 100):
        run(number)
    ends_at = time.monotonic() + 60
    while files_in(os.environ["TMPDIR"]) > first["files"] and time.monotonic() < ends_at:
        collect_garbage()
        time.sleep(0.2)
    print(json.dumps(first), json.dumps(measure()), sep="\\n")
    """


def test_a_hundred_pipelines_leave_no_more_than_ten(tmp_path: Path) -> None:
    program, temporary, out = tmp_path / "program.py", tmp_path / "temporary", tmp_path / "out"
    program.write_text(textwrap.dedent(PROGRAM))
    temporary.mkdir()
    out.mkdir()
    done = subprocess.run(
        [sys.executable, str(program), str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    after_ten, after_all = map(json.loads, done.stdout.splitlines())
    grown = {
        name: (before, after_all[name])
        for name, before in after_ten.items()
        if after_all[name] > 1.1 * before
    }
    assert not grown

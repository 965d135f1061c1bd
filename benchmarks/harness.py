"""The cost of an SDK harness in another process: ``python -m benchmarks.harness``.

data, without Spark: this process sends elements to a PROCESS harness, whose one step emits them
unchanged. Elements are made beforehand; this process encodes them, and decodes the results. Only
the bytes of values are counted, once in each direction, without timestamps, windows and lengths.

start, without Spark: the time from the start of a harness until its first element arrives here,
compared with the times to import Apache Beam, and all modules that its ``sdk_worker_main`` imports.

word_count: 20 MB, alternately with and without a harness, in one warm session of ``local[2]``.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue, create

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.job.prepare.compile import compile_graph
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.sdk_options import options_json
from beam_spark_runner.spark.session.launch import start_classic
from benchmarks.cases import CASES

_COUNT = 1_000_000
_SIZE = 100
_AT_ONCE = 1_000  # elements of a push, as a task reads them
_RUNS = 4
_STARTS = 5
_MEGABYTES = 20
PROCESS = ["--environment_type=PROCESS", "--environment_config={}"]
_ORIGIN = create(None, MIN_TIMESTAMP.micros, (GlobalWindow(),), PANE_INFO_UNKNOWN)


class _Counts:
    """A receiver that counts elements and the bytes of their values."""

    def __init__(self) -> None:
        self.elements = self.bytes = 0

    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self.elements += len(values)
        self.bytes += sum(map(len, values))


def _identity(pipeline: beam.Pipeline) -> Any:
    same = beam.Map(lambda element: element).with_output_types(bytes)
    return pipeline | beam.Impulse() | same | beam.Reshuffle() | beam.Map(repr)


def _stage(build: Callable[[beam.Pipeline], Any]) -> RemoteStage:
    """Return the first stage of a pipeline, in the environment of ``PROCESS``."""
    options = PipelineOptions(PROCESS)
    pipeline = beam.Pipeline()
    build(pipeline)
    environment = SparkPortableRunner().default_environment(options)
    plan = compile_graph(from_proto(pipeline.to_runner_api(default_environment=environment)))
    id_ = StageId(min(plan.stages))
    settings = HarnessSettings(job_id="benchmark", options_json=options_json({}))
    return RemoteStage(plan.stages[id_].name, describe(plan, id_), settings, id_)


def _bundle(stage: RemoteStage, values: list[bytes]) -> _Counts:
    counts = _Counts()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, counts), {})
    for start in range(0, len(values), _AT_ONCE):
        some = values[start : start + _AT_ONCE]
        bundle.push(some, [_ORIGIN] * len(some))
    bundle.finish()
    return counts


def _data_plane() -> None:
    stage = _stage(_identity)
    _bundle(stage, [b"x"] * 1000)
    (harness,) = (
        each
        for each in psutil.Process().children(recursive=True)
        if each.cmdline()[1:3] == ["-m", "apache_beam.runners.worker.sdk_worker_main"]
    )
    lengths = itertools.cycle(range(8, 2 * _SIZE - 7))  # _SIZE on average
    numbers = [number.to_bytes(8, "big") for number in range(_COUNT)]
    for name, values in (
        ("of one length", [number + bytes(_SIZE - 8) for number in numbers]),
        ("of mixed lengths", [number.ljust(next(lengths), b"x") for number in numbers]),
    ):
        size = sum(map(len, values))
        best, own_s, its_s = float("inf"), 0.0, 0.0
        for _ in range(_RUNS):
            before = (time.monotonic(), time.process_time(), _cpu_s(harness))
            counts = _bundle(stage, values)
            after = (time.monotonic(), time.process_time(), _cpu_s(harness))
            if (counts.elements, counts.bytes) != (_COUNT, size):
                raise ValueError(f"{counts.elements} elements came back: the run is void")
            spent = [one - other for one, other in zip(after, before, strict=True)]
            if spent[0] < best:
                best, own_s, its_s = spent
        print(
            f"data plane, {_COUNT:,} values {name}, {size / 1e6:.0f} MB each way: {best:.2f} s, "
            f"{2 * size / best / 1e6:.0f} MB/s both ways together; "
            f"CPU {own_s / _COUNT * 1e9:,.0f} ns for each here, "
            f"{its_s / _COUNT * 1e9:,.0f} ns in the harness"
        )
    sdk_harnesses.stop()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _start() -> None:
    stage = _stage(_identity)

    def first_element() -> None:
        _bundle(stage, [b"x"])

    def imports(module: str) -> Callable[[], None]:
        return lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)  # type: ignore[return-value]

    figures = {}
    for name, work, after in (
        ("python -c 'import apache_beam'", imports("apache_beam"), None),
        (
            "the same of sdk_worker_main",
            imports("apache_beam.runners.worker.sdk_worker_main"),
            None,
        ),
        ("harness, to its first element", first_element, sdk_harnesses.stop),
    ):
        seconds = []
        for _ in range(_STARTS):
            began = time.monotonic()
            work()
            seconds.append(time.monotonic() - began)
            if after is not None:
                after()
        figures[name] = min(seconds)
        print(f"{name + ':':32} {min(seconds):.2f} s, median {sorted(seconds)[_STARTS // 2]:.2f} s")
    base, needed, ours = figures.values()
    print(f"ratio: {ours / base:.2f} of apache_beam's import, {ours / needed:.2f} of the other")


def _word_count() -> None:
    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    seconds: dict[str, list[float]] = {"embedded": [], "PROCESS": []}
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as folder:
        for _ in range(_RUNS):
            for kind, all_ in seconds.items():
                options = PipelineOptions(PROCESS if kind == "PROCESS" else [])
                began = time.monotonic()
                with beam.Pipeline(SparkPortableRunner(session), options=options) as pipeline:
                    CASES["word_count"].build(pipeline, _MEGABYTES, Path(folder))
                all_.append(time.monotonic() - began)
    session.stop()
    (_, *embedded), (_, *process) = seconds.values()  # the first ones start JVM and workers
    print(
        f"word count, {_MEGABYTES} MB, warm: embedded {min(embedded):.2f} s, PROCESS "
        f"{min(process):.2f} s, ratio {min(process) / min(embedded):.2f}"
    )


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness", description=__doc__)
    cases = {"data": _data_plane, "start": _start, "word_count": _word_count}
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(cases)}; all if none is named")
    for case in parser.parse_args().cases or cases:
        cases[case]()


if __name__ == "__main__":
    main()

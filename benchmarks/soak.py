"""Runs a streaming pipeline for long: ``python -m benchmarks.soak``. Its resources must not grow.

The pipeline has a source, windows, state with timers, a side input and a grouping. It runs in a
separate process, whose memory and files this one measures. It fails if a figure of the last
quarter is more than a tenth above that of the second quarter.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from integration.waiting import newest_epoch

_TICKS_PER_S = 50
_PAIRS_PER_TICK = 20
_KEYS = 5_000
_REMEMBERED_S = 30
_MEASURED_EVERY_S = 10.0
_MAX_GROWTH = 1.1


class _Remembers(beam.DoFn):  # type: ignore[misc]
    """Counts the elements of a key for some time after the first one, and emits the count."""

    SEEN = CombiningValueStateSpec("seen", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        at: Any = beam.DoFn.TimestampParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        if not seen.read():
            end.set(at + _REMEMBERED_S)
        seen.add(1)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[int, int]]:
        yield key, seen.read()
        seen.clear()


def _pairs(at: float) -> Iterator[tuple[int, int]]:
    first = int(at * _TICKS_PER_S) * _PAIRS_PER_TICK
    return (((first + each) % _KEYS, 1) for each in range(_PAIRS_PER_TICK))


def _scaled(pair: tuple[int, int], factor: int) -> tuple[int, int]:
    return pair[0], pair[1] * factor


def _build(pipeline: beam.Pipeline) -> None:
    factors = (
        pipeline
        | "Every ten seconds" >> PeriodicImpulse(fire_interval=10)
        | "Factor" >> beam.Map(lambda at: int(at) % 7)
        | "Latest"
        >> beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        | beam.combiners.Latest.Globally().without_defaults()
    )
    pairs = (
        pipeline
        | "Ticks" >> PeriodicImpulse(fire_interval=1 / _TICKS_PER_S)
        | beam.FlatMap(_pairs).with_output_types(tuple[int, int])
    )
    _ = pairs | beam.ParDo(_Remembers()) | "Forgotten" >> beam.Map(lambda pair: pair)
    _ = (
        pairs
        | beam.WindowInto(FixedWindows(10))
        | beam.Map(_scaled, beam.pvalue.AsSingleton(factors)).with_output_types(tuple[int, int])
        | beam.CombinePerKey(sum)
        | "By remainder" >> beam.Map(lambda pair: (pair[0] % 10, pair[1]))
        | beam.GroupByKey()
        | "Sums" >> beam.MapTuple(lambda _, values: sum(values))
    )


def _run(checkpoints: str) -> None:
    """Run the pipeline in the measured process; print the used heap for each line of input."""
    session = start_classic("local[2]", "soak", {"spark.ui.enabled": "false"})
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(session),
        options=PipelineOptions(
            [f"--checkpoint_dir={checkpoints}", "--batch_interval_millis=100"],
        ),
    )
    _build(pipeline)
    result = pipeline.run()
    runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()
    while sys.stdin.readline():
        runtime.gc()
        if result.state != "RUNNING":
            result.wait_until_finish()  # which raises its error
        print(runtime.totalMemory() - runtime.freeMemory(), flush=True)
    result.cancel()
    session.stop()


def _bytes_of(path: Path) -> int:
    total = 0
    for each in path.rglob("*"):
        try:
            total += each.stat().st_blocks * 512  # files of state have holes
        except OSError:  # it was deleted meanwhile
            continue
    return total


def _sum_of(processes: list[psutil.Process], measure: Callable[[psutil.Process], int]) -> int:
    total = 0
    for process in processes:
        try:
            total += measure(process)
        except psutil.Error:
            continue
    return total


def _sample(child: subprocess.Popen[str], folder: Path) -> dict[str, float]:
    """Measure the resources that the pipeline uses now.

    Raises:
        SystemExit: The pipeline has ended.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    heap = child.stdout.readline()
    if not heap:
        raise SystemExit("the pipeline has ended")
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    java = [each for each in family if each.name() == "java"]
    workers = [each for each in family[1:] if each not in java]
    return {
        "JVM heap, MB": int(heap) / 1e6,
        "driver RSS, MB": family[0].memory_info().rss / 1e6,
        "workers, private MB": _sum_of(workers, lambda each: each.memory_full_info().uss) / 1e6,
        "disk, MB": _bytes_of(folder) / 1e6,
        "checkpoint files": len(list((folder / "checkpoints").iterdir())),
        "open files": _sum_of(family, psutil.Process.num_fds),
    }


def _watch(child: subprocess.Popen[str], folder: Path, epochs: int, minutes: float) -> int:
    began = at = time.monotonic()
    samples: list[dict[str, float]] = []
    newest = 0
    while newest < epochs or at - began < 60 * minutes:
        time.sleep(_MEASURED_EVERY_S)
        sample, before, last = _sample(child, folder), at, newest
        at, newest = time.monotonic(), newest_epoch(folder / "checkpoints")
        sample["ms for an epoch"] = (at - before) * 1e3 / max(1, newest - last)
        samples.append(sample)
    print(f"{newest:,} epochs in {(at - began) / 60:.0f} minutes")
    return _report(samples)


def _report(samples: Sequence[Mapping[str, float]]) -> int:
    quarter = len(samples) // 4
    grown = 0
    for name in samples[0]:
        quarters = [
            statistics.median(each[name] for each in samples[part * quarter : (part + 1) * quarter])
            for part in range(4)
        ]
        has_grown = quarters[3] > _MAX_GROWTH * quarters[1]
        grown += has_grown
        texts = ", ".join(f"{each:,.1f}" for each in quarters)
        print(f"{name}, medians of quarters: {texts}{' HAS GROWN' if has_grown else ''}")
    return 1 if grown else 0


def main() -> int:
    """Run the pipeline for the requested number of epochs and time, and compare the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _run(arguments.child)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoints").mkdir()
        command = [sys.executable, "-m", "benchmarks.soak", "--child", f"{folder}/checkpoints"]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": name, "SPARK_LOCAL_DIRS": name},
        )
        try:
            return _watch(child, folder, arguments.epochs, arguments.minutes)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())

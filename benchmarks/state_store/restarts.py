"""Starts with another number of partitions, and the memory of workers with more keys."""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.redis_store import RedisStore
from benchmarks.state_store.partition import Partition
from benchmarks.state_store.rounds import Counts, in_process
from tests.spark.restarting import StoppedError, stopping_after

_STARTS = (4, 4, 8, 8)
_EPOCHS = len(_STARTS) + 2
_CHANGED = 20_000  # keys in each epoch whose memory is measured


class _Start(NamedTuple):
    """What a start takes until its first epoch is committed."""

    clock_s: float
    cpu_s: float
    trips: int  # to the state store


def starts(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure starts with 4 and 8 partitions, of a pipeline that has keys already."""
    for what, flags in (
        ("on the local disk", ()),
        ("in the store", (f"--state_store=redis://127.0.0.1:{port}",)),
    ):
        path = folder / what
        run = (*flags, f"--checkpoint_dir={path}")
        _start(arguments.keys, 2, 4, *run)  # stores the keys
        for before, partitions in zip((4, *_STARTS), _STARTS, strict=False):
            took = _start(arguments.keys, 1, partitions, *run)
            print(
                f"{what}, {arguments.keys:,} keys, {before} -> {partitions} partitions: "
                f"{took.clock_s:.2f} s until the first commit; CPU: {took.cpu_s:.2f} s; "
                f"{took.trips} round trips",
                flush=True,
            )


def _start(keys: int, epochs: int, partitions: int, *flags: str) -> _Start:
    events = TestStream().with_output_types(tuple[int, int])
    events.add_elements([TimestampedValue((key, 0), 0) for key in range(keys)])
    events.advance_watermark_to(1)
    for number in range(1, _EPOCHS):
        events.add_elements([TimestampedValue((number, number), number)])
        events.advance_watermark_to(number + 1)
    trips = 0
    attempt = RedisStore._attempt

    def counted(store: RedisStore, commands: Any) -> Any:
        nonlocal trips
        trips += 1
        return attempt(store, commands)

    pipeline = beam.Pipeline(
        SparkPortableRunner(),
        PipelineOptions(["--streaming", f"--parallelism={partitions}", *flags]),
    )
    _ = pipeline | events | beam.ParDo(Counts())
    with in_process(), stopping_after(epochs), mock.patch.object(RedisStore, "_attempt", counted):
        clock_s, cpu_s = time.monotonic(), time.process_time()
        try:
            pipeline.run().wait_until_finish()
        except StoppedError:
            return _Start(time.monotonic() - clock_s, time.process_time() - cpu_s, trips)
    raise SystemExit("the pipeline ended before it was stopped")


def workers(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure the memory of processes that have a number of keys, and ten times as many."""
    peaks = []
    for count in (arguments.stored // 10, arguments.stored):
        worker = [sys.executable, "-m", __name__, str(port), str(folder / str(count)), str(count)]
        peaks.append(int(subprocess.run(worker, check=True, capture_output=True).stdout))
        print(f"{count:,} keys: at most {peaks[-1] >> 10} MB of a worker's memory", flush=True)
    few, many = peaks
    print(f"{many / few - 1:+.0%} with ten times the keys")


def _worker(port: int, folder: Path, count: int) -> int:
    """Store keys, change some of them, and return the most kilobytes of memory."""
    partition = Partition(folder, StateStoreAddress(f"redis://127.0.0.1:{port}"))
    for start in range(0, count, _CHANGED):
        some = range(start, min(start + _CHANGED, count))
        partition.run(sorted(b"%012d" % (number * 7_919 % count) for number in some))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(_worker(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))

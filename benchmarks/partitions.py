"""Full-window partitions compared with other ways to compute the same, in one warm session.

    python -m benchmarks.partitions [--size N] [--sort-size N] [--runs N] [CASE …]

The two pipelines of a case run alternately; the ratio is that of the fastest runs. Spark's own sort
gets the same bytes, which Python makes and counts there, too.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.transforms import FullWindowPartition

_MASK = (1 << 64) - 1
_PADDING = b"x" * 92
_BLOCK = 10_000


def _record(number: int) -> bytes:
    """Return a record of 100 bytes; the records of consecutive numbers are in no order."""
    mixed = (number * 0x9E3779B97F4A7C15) & _MASK
    return (mixed ^ mixed >> 29).to_bytes(8, "big") + _PADDING


def _starts(size: int) -> list[int]:
    return [*range(0, size, _BLOCK)]


def _numbers(start: int) -> Iterable[int]:
    return range(start, start + _BLOCK)


def _records(start: int) -> Iterator[bytes]:
    return map(_record, _numbers(start))


def _increased(records: Iterator[int]) -> Iterator[int]:
    for record in records:
        yield record + 1


def _partition_of_task(number: int) -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), number


def _count(batches: Iterator[Any]) -> Iterator[Any]:
    last, count = b"", 0
    for batch in batches:
        for record in batch.column(0).to_pylist():
            count += record >= last
            last = record
    import pyarrow as pa

    yield pa.record_batch({"count": pa.array([count], pa.int64())})


def _make(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for start in batch.column(0).to_pylist():
            yield pa.record_batch({"record": pa.array([*_records(start)], pa.binary())})


def _count_in_order(records: Iterator[bytes]) -> Iterator[int]:
    last, count = b"", 0
    for record in records:
        count += record >= last
        last = record
    yield count


class _Bench:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def beam(self, size: int, build: Callable[[Any], Any]) -> None:
        with beam.Pipeline(runner=SparkPortableRunner(spark=self._spark)) as pipeline:
            starts = pipeline | beam.Create(_starts(size)) | beam.Reshuffle()
            made = build(starts)
            made | beam.CombineGlobally(sum) | beam.Map(_check, size)

    def spark_sort(self, size: int) -> None:
        starts = self._spark.range(0, size, _BLOCK, 2)
        in_order = starts.mapInArrow(_make, "record binary").sortWithinPartitions("record")
        counts = in_order.mapInArrow(_count, "count long").collect()
        _check(sum(row["count"] for row in counts), size)

    def cases(self, size: int, sort_size: int) -> dict[str, tuple[Callable[[], None], ...]]:
        """Return for each case the measured pipeline, and the one that it is compared with."""
        window = FullWindowPartition()
        counted = beam.combiners.CountCombineFn()

        def ones(values: Any) -> Any:
            return values | beam.Map(lambda _: 1) | "fewer" >> beam.CombineGlobally(sum)

        return {
            "map_partition / Map": (
                lambda: self.beam(
                    size,
                    lambda p: ones(p | beam.FlatMap(_numbers) | window.map_partition(_increased)),
                ),
                lambda: self.beam(
                    size, lambda p: ones(p | beam.FlatMap(_numbers) | beam.Map(lambda x: x + 1))
                ),
            ),
            "aggregate / CombinePerKey": (
                lambda: self.beam(
                    size, lambda p: p | beam.FlatMap(_numbers) | window.aggregate(counted)
                ),
                lambda: self.beam(
                    size,
                    lambda p: (
                        p
                        | beam.FlatMap(_numbers)
                        | beam.Map(_partition_of_task)
                        | beam.CombinePerKey(counted)
                        | beam.Values()
                    ),
                ),
            ),
            "sort_partition / sortWithinPartitions": (
                lambda: self.beam(
                    sort_size,
                    lambda p: (
                        p
                        | beam.FlatMap(_records).with_output_types(bytes)
                        | window.sort_partition(_itself)
                        | window.map_partition(_count_in_order)
                    ),
                ),
                lambda: self.spark_sort(sort_size),
            ),
        }


def _itself(record: bytes) -> bytes:
    return record


def _check(total: int, expected: int) -> None:
    if total != expected:
        raise ValueError(f"{total} instead of {expected}: the run is void")


def _timed(run: Callable[[], None]) -> tuple[float, int]:
    """Return the seconds of a run, and the memory of the largest Python worker after it, in MB."""
    started = time.monotonic()
    run()
    seconds = time.monotonic() - started
    workers = [
        each.memory_info().rss >> 20
        for each in psutil.Process().children(recursive=True)
        if each.name().startswith("python")
    ]
    return seconds, max(workers, default=0)


def main() -> None:
    """Measure, and print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--size", type=int, default=40_000_000, help="elements")
    parser.add_argument("--sort-size", type=int, default=20_000_000, help="records of 100 bytes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("cases", nargs="*", help="beginnings of their names; all if none is given")
    arguments = parser.parse_args()
    spark = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    bench = _Bench(spark)
    for name, pair in bench.cases(arguments.size, arguments.sort_size).items():
        if arguments.cases and not name.startswith(tuple(arguments.cases)):
            continue
        taken: list[list[float]] = [[], []]
        peak_mb = 0
        for _ in range(arguments.runs + 1):  # the first one warms
            for side, run in enumerate(pair):
                seconds, memory_mb = _timed(run)
                taken[side].append(seconds)
                peak_mb = max(peak_mb, memory_mb)
        ours, other = (min(seconds[1:]) for seconds in taken)
        print(f"{name}: {ours:.2f} s / {other:.2f} s = {ours / other:.2f}   worker {peak_mb} MB")
    spark.stop()


if __name__ == "__main__":
    main()

"""Large values that cross from one Spark job to the next by way of shared storage.

On a cluster whose executors have a heap of 1 GB. Usage:
large_values_on_a_cluster.py CASE NUMBER_OF_VALUES MEGABYTES FOLDER.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner import SparkPortableRunner
from integration.cluster import start_cluster, wait_for_executors

MB = 1 << 20
KEYS = 20
BLOCK = MB // 4  # longer than what Spark's compression looks back on


class Make(beam.DoFn):  # type: ignore[misc]
    """Make a value that says its number, and how long it is meant to be."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self._size = megabytes * MB

    def process(self, number: int) -> Iterator[tuple[int, bytes]]:
        yield number % KEYS, number.to_bytes(16, "big") + os.urandom(BLOCK) * (self._size // BLOCK)


def number_of(value: bytes, megabytes: int) -> int:
    """Return the number of a value that is whole, or raise ValueError."""
    if len(value) != 16 + megabytes * MB or value[16:32] != value[-BLOCK:][:16]:
        raise ValueError(f"{len(value)} bytes, or others than were written")
    return int.from_bytes(value[:16], "big")


Pairs: TypeAlias = Any  # a collection of numbers with values
Numbers: TypeAlias = Any  # a collection


def _border(pairs: Pairs) -> beam.pvalue.AsSingleton:
    """Return a side input of what ``pairs`` are made by, so that its reader runs in a later job."""
    count = pairs | "Keys" >> beam.Keys() | "Count" >> beam.combiners.Count.Globally()
    return beam.pvalue.AsSingleton(count)


def pointwise(pairs: beam.PCollection, megabytes: int) -> beam.PCollection:
    """The later job reads the values with no exchange before."""
    return pairs | "Late" >> beam.Map(lambda pair, _: number_of(pair[1], megabytes), _border(pairs))


def redistributed(pairs: beam.PCollection, megabytes: int) -> beam.PCollection:
    """The later job begins with an exchange by no key."""
    return (
        pairs
        | "Move" >> beam.Reshuffle()
        | "Late" >> beam.Map(lambda pair, _: number_of(pair[1], megabytes), _border(pairs))
    )


def grouped(pairs: beam.PCollection, megabytes: int) -> beam.PCollection:
    """The later job begins with an exchange by key."""

    def numbers(pair: tuple[int, Iterable[bytes]], _: int) -> Iterator[int]:
        return (number_of(value, megabytes) for value in pair[1])

    return pairs | beam.GroupByKey() | "Late" >> beam.FlatMap(numbers, _border(pairs))


def side_input(pairs: beam.PCollection, megabytes: int) -> beam.PCollection:
    """The later job reads through all values."""

    def numbers(_: object, values: Iterable[tuple[int, bytes]]) -> Iterator[int]:
        return (number_of(value, megabytes) for _, value in values)

    return (
        pairs.pipeline
        | "Once" >> beam.Impulse()
        | "Late" >> beam.FlatMap(numbers, beam.pvalue.AsIter(pairs))
    )


def multimap(pairs: beam.PCollection, megabytes: int) -> beam.PCollection:
    """The later job looks values up by key."""

    def numbers(key: int, table: dict[int, Iterable[bytes]]) -> Iterator[int]:
        return (number_of(value, megabytes) for value in table[key])

    return (
        pairs.pipeline
        | "Keys to look up" >> beam.Create(range(KEYS))
        | "Spread keys" >> beam.Reshuffle()
        | "Late" >> beam.FlatMap(numbers, beam.pvalue.AsMultiMap(pairs))
    )


CASES: dict[str, Callable[[beam.PCollection, int], beam.PCollection]] = {
    case.__name__: case for case in (pointwise, redistributed, grouped, side_input, multimap)
}


def main(case: str, count: int, megabytes: int, folder: str) -> None:
    """Run one case; it checks itself."""
    options = PipelineOptions([f"--temp_location={folder}"])
    conf = {"spark.executor.memory": "1g"}
    with (
        start_cluster() as cluster,
        cluster.session("large values", conf) as session,
        beam.Pipeline(SparkPortableRunner(session), options) as pipeline,
    ):
        wait_for_executors(session)
        pairs = (
            pipeline
            | beam.Create(range(count))
            | beam.Reshuffle()
            | beam.ParDo(Make(megabytes)).with_output_types(tuple[int, bytes])
        )
        numbers = CASES[case](pairs, megabytes)
        found = numbers | "Sorted" >> beam.combiners.ToList() | beam.Map(sorted)
        assert_that(found, equal_to([list(range(count))]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

"""Pipelines with much data in few elements. Usage: large_values.py CASE FILES."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import Sessions, TimestampedValue

from beam_spark_runner import SparkPortableRunner

MB = 1 << 20


class _Measure(beam.DoFn):  # type: ignore[misc]
    def process(self, group: tuple[bytes, Iterable[bytes]]) -> Iterator[tuple[int, int, int]]:
        count = size = 0
        for value in group[1]:
            count += 1
            size += len(value)
        yield len(group[0]), count, size


def _kilobytes(count: int) -> Iterator[bytes]:
    return (os.urandom(8) * 128 for _ in range(count))


def one_element_to_2_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """A FlatMap makes 2 GB of one element."""
    return (
        pipeline
        | beam.Create([2 * 1024 * 1024])
        | beam.FlatMap(_kilobytes)
        | beam.Reshuffle()
        | beam.Map(len)
        | beam.CombineGlobally(sum)
    )


def group_of_2_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """All values have one key."""
    return (
        pipeline
        | beam.Create([32 * 1024] * 64)
        | beam.Reshuffle()
        | beam.FlatMap(
            lambda count: ((b"key", value) for value in _kilobytes(count))
        ).with_output_types(tuple[bytes, bytes])
        | beam.GroupByKey()
        | beam.ParDo(_Measure())
    )


def sessions_of_1_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """All values have one key: half of them, and more, are one session, the others 99."""

    def values(part: int) -> Iterator[TimestampedValue]:
        for number, value in enumerate(_kilobytes(16 * 1024)):
            second = number % 50 if part % 2 else 1000 * (number % 100)
            yield TimestampedValue((b"key", value), second)

    return (
        pipeline
        | beam.Create(range(64))
        | beam.Reshuffle()
        | beam.FlatMap(values).with_output_types(tuple[bytes, bytes])
        | beam.WindowInto(Sessions(60))
        | beam.GroupByKey()
        | beam.ParDo(_Measure())
    )


def key_of_50_mb(pipeline: beam.Pipeline) -> beam.PCollection:
    """Three elements share a long key."""
    return (
        pipeline
        | beam.Create([b"a", b"b", b"c"])
        | beam.Reshuffle()
        | beam.Map(lambda value: (b"k" * (50 * MB), value)).with_output_types(tuple[bytes, bytes])
        | beam.GroupByKey()
        | beam.ParDo(_Measure())
    )


def elements_of_1_mb(pipeline: beam.Pipeline) -> beam.PCollection:
    """2,000 elements of 1 MB, redistributed."""
    return (
        pipeline
        | beam.Create(list(range(2000)))
        | beam.Map(lambda _: os.urandom(MB // 64) * 64)
        | "Move" >> beam.Reshuffle()
        | "Length" >> beam.Map(len)
        | beam.CombineGlobally(sum)
    )


def grouped_elements_of_1_mb(pipeline: beam.Pipeline) -> beam.PCollection:
    """2,000 elements of 1 MB under two keys."""
    return (
        pipeline
        | beam.Create(list(range(2000)))
        | beam.Map(
            lambda number: (b"%d" % (number % 2), os.urandom(MB // 64) * 64)
        ).with_output_types(tuple[bytes, bytes])
        | beam.GroupByKey()
        | beam.ParDo(_Measure())
    )


def _entries(count: int) -> Iterator[tuple[int, bytes]]:
    """Kilobytes, the number of each in front."""
    return ((n, n.to_bytes(8, "big") * 128) for n in range(count))


def _table_of_2_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """Two million entries of 1 kB: 64 for each of 32,768 keys."""
    return (
        pipeline
        | "Parts" >> beam.Create([32 * 1024] * 64)
        | "Spread" >> beam.Reshuffle()
        | "Entries" >> beam.FlatMap(_entries).with_output_types(tuple[int, bytes])
    )


def multimap_of_2_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """5,000 keys are looked up in a side input that is larger than a worker may be."""

    def look_up(n: int, table: Mapping[int, Iterable[bytes]]) -> Iterator[tuple[int, bool]]:
        found = list(table[n])
        yield len(found), all(value == n.to_bytes(8, "big") * 128 for value in found)

    return (
        pipeline
        | "Keys" >> beam.Create(range(0, 40 * 1024, 8))
        | "Spread keys" >> beam.Reshuffle()
        | "Look up" >> beam.FlatMap(look_up, beam.pvalue.AsMultiMap(_table_of_2_gb(pipeline)))
        | beam.combiners.Count.PerElement()
    )


def side_input_of_2_gb_iterated(pipeline: beam.Pipeline) -> beam.PCollection:
    """All of it passes by, for each of two elements."""
    return (
        pipeline
        | "Once" >> beam.Create([1, 2])
        | "Spread all" >> beam.Reshuffle()
        | "Add up"
        >> beam.Map(
            lambda _, table: sum(len(value) for _, value in table),
            beam.pvalue.AsIter(_table_of_2_gb(pipeline)),
        )
    )


class _Pile(beam.DoFn):  # type: ignore[misc]
    """Keeps all that its key gets, and looks at it when event time ends."""

    BAG = BagStateSpec("bag", BytesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[bytes, bytes],
        window: Any = beam.DoFn.WindowParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        bag.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def measure(self, bag: Any = beam.DoFn.StateParam(BAG)) -> Iterator[tuple[int, int]]:
        """Say how many values there are, and how long they are, twice."""
        for _ in range(2):
            count = size = 0
            for value in bag.read():
                count += 1
                size += len(value)
            yield count, size


def bag_of_1_gb(pipeline: beam.Pipeline) -> beam.PCollection:
    """A million values of 1 kB in the state of one key."""
    return (
        pipeline
        | beam.Create([16 * 1024] * 64)
        | beam.Reshuffle()
        | beam.FlatMap(
            lambda count: ((b"key", value) for value in _kilobytes(count))
        ).with_output_types(tuple[bytes, bytes])
        | beam.ParDo(_Pile())
    )


def bag_of_megabytes(pipeline: beam.Pipeline) -> beam.PCollection:
    """1,024 values of 1 MB in the state of one key."""
    return (
        pipeline
        | beam.Create(list(range(1024)))
        | beam.Map(lambda _: (b"key", os.urandom(MB // 64) * 64)).with_output_types(
            tuple[bytes, bytes]
        )
        | beam.ParDo(_Pile())
    )


CASES: dict[str, Callable[[beam.Pipeline], beam.PCollection]] = {
    case.__name__: case
    for case in (
        one_element_to_2_gb,
        group_of_2_gb,
        sessions_of_1_gb,
        key_of_50_mb,
        bag_of_1_gb,
        bag_of_megabytes,
        elements_of_1_mb,
        grouped_elements_of_1_mb,
        multimap_of_2_gb,
        side_input_of_2_gb_iterated,
    )
}


def main() -> None:
    """Run one case."""
    flags = ["--spark_master_url=local[2]", "--spark_conf=spark.ui.enabled=false"]
    with beam.Pipeline(
        runner=SparkPortableRunner(), options=beam.options.pipeline_options.PipelineOptions(flags)
    ) as pipeline:
        _ = CASES[sys.argv[1]](pipeline) | "Write" >> beam.io.WriteToText(sys.argv[2])


if __name__ == "__main__":
    main()

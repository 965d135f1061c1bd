"""Steps that run over chunks: nothing that Beam promises is lost by it."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    TimestampedValue,
)
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest, run

COUNT = 3_000


class Counting(beam.DoFn):  # type: ignore[misc]
    """Holds its last elements back until the bundle ends."""

    def setup(self) -> None:
        self._factor = 2

    def start_bundle(self) -> None:
        self._held: list[int] = []
        self._seen = 0

    def process(self, number: int) -> Iterator[int]:
        Metrics.counter("chunks", "seen").inc()
        Metrics.distribution("chunks", "numbers").update(number)
        self._seen += 1
        self._held.append(number)
        if len(self._held) > 5:
            yield self._held.pop(0) * self._factor

    def finish_bundle(self) -> Iterator[WindowedValue]:
        assert self._seen > 0
        for number in self._held:
            yield WindowedValue(number * self._factor, 0, (GlobalWindow(),))


def test_a_chain_of_all_kinds(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        counted = p | beam.Create(range(COUNT)) | "count" >> beam.ParDo(Counting())
        odd = (
            counted
            | "half" >> beam.Map(lambda n: n // 2)
            | "pair" >> beam.Map(lambda n: (n, 1))
            | "unpair" >> beam.MapTuple(lambda n, one: n * one)
            | "odd" >> beam.Filter(lambda n: n % 2)
        )
        twice = odd | "twice" >> beam.FlatMap(lambda n: [n, n])
        return {
            "counted": counted,
            "twice": twice,
            "ends": odd | "digits" >> beam.FlatMap(lambda n: (digit for digit in str(n)[-1:])),
            "sums": twice | "key" >> beam.Map(lambda n: (n % 10, n)) | beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build)
    odd = range(1, COUNT, 2)
    assert found["counted"] == [2 * n for n in range(COUNT)]
    assert found["twice"] == sorted([*odd, *odd])
    assert found["ends"] == sorted(str(n)[-1] for n in odd)
    assert found["sums"] == [(end, 2 * sum(range(end, COUNT, 10))) for end in (1, 3, 5, 7, 9)]
    assert found.counter("seen") == COUNT


def test_timestamps_and_tags(spark_session: Any) -> None:
    def sort(number: int) -> list[Any]:
        tagged = [beam.pvalue.TaggedOutput("even", number)] if number % 2 == 0 else []
        return [number, *tagged]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create(range(COUNT))
            | "stamp" >> beam.Map(lambda n: TimestampedValue(n, n))
            | "same" >> beam.Map(lambda n: n)
            | "repeat" >> beam.FlatMap(lambda n: [n] * (n % 3))
        )
        outputs = timed | beam.FlatMap(sort).with_outputs("even", main="all")
        return {"all": outputs.all, "even": outputs.even | "next" >> beam.Map(lambda n: n + 1)}

    found = harvest(spark_session, build)
    expected = sorted(n for n in range(COUNT) for _ in range(n % 3))
    assert found.timed("all") == [(n, float(n)) for n in expected]
    assert found.timed("even") == [(n + 1, float(n)) for n in expected if n % 2 == 0]


def test_windows_are_a_list_as_window_fns_give_them(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = p | beam.Create([1, 7]) | "stamp" >> beam.Map(lambda n: TimestampedValue(n, n))
        windowed = timed | beam.WindowInto(FixedWindows(5))
        return {"seen": windowed | beam.Map(lambda _, of=beam.DoFn.WindowedValueParam: of.windows)}

    expected = [[IntervalWindow(0, 5)], [IntervalWindow(5, 10)]]
    assert harvest(spark_session, build)["seen"] == expected


class Reuse(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> Iterator[list[int]]:
        row: list[int] = []
        for digit in range(2):
            row += [number, digit]
            yield row
            row.clear()


def test_values_that_are_changed_after_they_were_given_out(spark_session: Any) -> None:
    """Beam forbids it and its own harness forgives it: so do we."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"rows": p | beam.Create(range(100)) | beam.ParDo(Reuse()) | beam.Map(tuple)}

    found = harvest(spark_session, build)
    assert found["rows"] == [(n, digit) for n in range(100) for digit in range(2)]


class Batching(beam.DoFn):  # type: ignore[misc]
    """Manual batching with one list, which is given out, and then cleared."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._batch: list[int] = []

    def process(self, number: int) -> Iterator[list[int]]:
        self._batch.append(number)
        if len(self._batch) == self._size:
            yield self._batch
            self._batch.clear()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._batch:
            yield WindowedValue(self._batch, 0, (GlobalWindow(),))
            self._batch.clear()


@pytest.mark.parametrize("size", [25, 200])
def test_manual_batching(spark_session: Any, size: int) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(COUNT), reshuffle=False)
        batches = numbers | beam.ParDo(Batching(size))
        return {
            "sums": batches | "sum" >> beam.Map(lambda batch: (len(batch), sum(batch))),
            "again": batches | beam.Map(lambda batch: batch) | beam.Map(len),
            "grouped": batches | beam.Map(lambda batch: (len(batch), batch)) | beam.GroupByKey(),
        }

    found = harvest(spark_session, build)
    assert sum(count for count, _ in found["sums"]) == COUNT
    assert sum(of_batch for _, of_batch in found["sums"]) == sum(range(COUNT))
    assert sum(found["again"]) == COUNT
    grouped = [batch for _, batches in found["grouped"] for batch in batches]
    assert sorted(number for batch in grouped for number in batch) == list(range(COUNT))


def test_a_buffer_that_every_call_returns(spark_session: Any) -> None:
    buffer: dict[str, list[int]] = {"of": []}

    def put(number: int) -> dict[str, list[int]]:
        buffer["of"].append(number)
        del buffer["of"][:-1]
        return buffer

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(COUNT), reshuffle=False)
        rows = numbers | beam.Map(put)
        return {"rows": rows | beam.Map(lambda row: row["of"][0])}

    assert harvest(spark_session, build)["rows"] == list(range(COUNT))


def first_above(number: int) -> int:
    return next(each for each in (10, 20, 30) if each > number)


@pytest.mark.parametrize("step", ["map", "map tuple", "filter", "flat map", "combine"])
def test_stop_iteration_loses_nothing_in_silence(spark_session: Any, step: str) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(100), reshuffle=False) | "ok" >> beam.Map(lambda n: n)
        match step:
            case "map":
                numbers | "Guilty" >> beam.Map(first_above)
            case "map tuple":
                numbers | beam.Map(lambda n: (n,)) | "Guilty" >> beam.MapTuple(first_above)
            case "filter":
                numbers | "Guilty" >> beam.Filter(first_above)
            case "flat map":
                numbers | "Guilty" >> beam.FlatMap(lambda n: (first_above(n) for _ in "a"))
            case "combine":
                keyed = numbers | beam.Map(lambda n: (n, n))
                keyed | "Guilty" >> beam.CombinePerKey(lambda some: first_above(sum(some)))

    with pytest.raises(BundleFailedError, match=r"Guilty") as caught:
        run(spark_session, build)
    assert "StopIteration" in str(caught.value)


def divide(number: int) -> float:
    return 1 / (number - 700)


class Mean(beam.CombineFn):  # type: ignore[misc]
    """Fails at a given place."""

    def __init__(self, fails_in: str) -> None:
        self._fails_in = fails_in

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], number: int) -> tuple[int, int]:
        return accumulator[0] + number, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Any) -> tuple[int, int]:
        if self._fails_in == "merge":
            divide(700)
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[int, int]) -> float:
        if self._fails_in == "extract":
            divide(700)
        return accumulator[0] / accumulator[1]


@pytest.mark.parametrize("fails_in", ["merge", "extract", "nothing"])
def test_which_combiner_failed(spark_session: Any, fails_in: str) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        keyed = p | beam.Create([(n % 2, n) for n in range(100)])
        return {"mean": keyed | "Guilty" >> beam.CombinePerKey(Mean(fails_in))}

    if fails_in == "nothing":
        assert harvest(spark_session, build)["mean"] == [(0, 49.0), (1, 50.0)]
        return
    with pytest.raises(BundleFailedError, match=r"Guilty[^\n]*ZeroDivisionError") as caught:
        run(spark_session, build)
    assert caught.value.step.startswith("Guilty")


@pytest.mark.parametrize("step", ["map", "filter", "combine"])
def test_who_failed(spark_session: Any, step: str) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(1000), reshuffle=False) | "ok" >> beam.Map(lambda n: n)
        match step:
            case "map":
                made = numbers | "Guilty" >> beam.Map(divide)
            case "filter":
                made = numbers | "Guilty" >> beam.Filter(divide)
            case "combine":
                keyed = numbers | beam.Map(lambda n: (0, n))
                made = keyed | "Guilty" >> beam.CombinePerKey(
                    lambda values: sum(map(divide, values))
                )
        made | "after" >> beam.Map(lambda n: n)

    with pytest.raises(BundleFailedError, match=r"Guilty[^\n]*ZeroDivisionError") as caught:
        run(spark_session, build)
    assert "in divide" in str(caught.value)


class Sentence(beam.DoFn):  # type: ignore[misc]
    def process(self, word: str) -> Any:
        return word * 2


def test_a_string_instead_of_a_list(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create(["ab", "cd"]) | "Say" >> beam.ParDo(Sentence())

    with pytest.raises(BundleFailedError, match=r"(?s)Say.*Returning a str from a ParDo"):
        run(spark_session, build)

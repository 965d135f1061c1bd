"""Combiners, joins and statistics."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsMultiMap
from apache_beam.transforms import combiners
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows

from tests.harvest import harvest


class Mean(beam.CombineFn):  # type: ignore[misc]
    """With accumulators unlike its inputs and outputs."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add_input(self, accumulator: tuple[int, int], element: int) -> tuple[int, int]:
        return accumulator[0] + element, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[int, int]]) -> tuple[int, int]:
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1] if accumulator[1] else -1.0


def test_combine(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | "numbers" >> beam.Create(range(1000))
        nothing = p | "nothing" >> beam.Create([]).with_output_types(int)
        pairs = numbers | beam.Map(lambda n: (n % 3, n))
        impulse = p | beam.Impulse()
        return {
            "sums": pairs | beam.CombinePerKey(sum),
            "means": pairs | "mean" >> beam.CombinePerKey(Mean()),
            "hot": pairs | "hot" >> beam.CombinePerKey(Mean()).with_hot_key_fanout(4),
            "hot by key": pairs
            | "hot 2" >> beam.CombinePerKey(sum).with_hot_key_fanout(lambda key: key * 3),
            "values": pairs | beam.GroupByKey() | beam.CombineValues(Mean()),
            "extra": pairs | "extra" >> beam.CombinePerKey(Plus(), 5),
            "global": numbers | beam.CombineGlobally(Mean()),
            "fanout": numbers | "fanout" >> beam.CombineGlobally(Mean()).with_fanout(4),
            "empty": nothing | "empty" >> beam.CombineGlobally(Mean()),
            "empty, no default": nothing
            | "no default" >> beam.CombineGlobally(Mean()).without_defaults(),
            "empty per key": nothing
            | "to pairs" >> beam.Map(lambda n: (n, n))
            | "empty per key" >> beam.CombinePerKey(sum),
            "singleton": impulse
            | "read view"
            >> beam.Map(
                lambda _, mean, default: (mean, default),
                numbers | "view" >> beam.CombineGlobally(Mean()).as_singleton_view(),
                nothing | "view 2" >> beam.CombineGlobally(Mean()).as_singleton_view(),
            ),
        }

    found = harvest(spark_session, build)
    sums = [(k, sum(range(k, 1000, 3))) for k in range(3)]
    means = [(k, total / len(range(k, 1000, 3))) for k, total in sums]
    assert found["sums"] == found["hot by key"] == sums
    assert found["means"] == found["hot"] == found["values"] == means
    assert found["extra"] == [(k, total + 5) for k, total in sums]
    assert found["global"] == found["fanout"] == [499.5]
    assert found["empty"] == [-1.0]
    assert found["empty, no default"] == found["empty per key"] == []
    assert found["singleton"] == [(499.5, -1.0)]


class Plus(beam.CombineFn):  # type: ignore[misc]
    """Gets an argument with each call."""

    def create_accumulator(self, more: int) -> int:
        return 0

    def add_input(self, accumulator: int, element: int, more: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int], more: int) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int, more: int) -> int:
        return accumulator + more


def test_joins_and_statistics(spark_session: Any) -> None:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "the", "end"]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        left = p | "left" >> beam.Create([("a", 1), ("a", 2), ("b", 3)])
        right = p | "right" >> beam.Create([("a", "x"), ("c", "y")])
        numbers = p | "numbers" >> beam.Create(list(range(100)) * 2)
        text = p | "words" >> beam.Create(words)
        return {
            "joined": {"l": left, "r": right}
            | beam.CoGroupByKey()
            | beam.MapTuple(lambda key, sides: (key, sorted(sides["l"]), sorted(sides["r"]))),
            "joined tuple": (left, right)
            | "join tuple" >> beam.CoGroupByKey()
            | "tuple"
            >> beam.MapTuple(lambda key, sides: (key, sorted(sides[0]), sorted(sides[1]))),
            "distinct": numbers | beam.Distinct(),
            "top": numbers | combiners.Top.Of(3) | "sorted" >> beam.Map(sorted),
            "largest": text
            | "by length" >> beam.Map(lambda word: (len(word), word))
            | combiners.Top.LargestPerKey(1),
            "sample": numbers | combiners.Sample.FixedSizeGlobally(7) | beam.Map(len),
            "count": numbers | "count" >> combiners.Count.Globally(),
            "per element": text | combiners.Count.PerElement(),
            "list": numbers | combiners.ToList() | "sort list" >> beam.Map(sorted),
            "dict": left | beam.Values() | beam.WithKeys(str) | combiners.ToDict(),
            "set": text | combiners.ToSet() | "size of set" >> beam.Map(len),
            "mean": numbers | "mean" >> combiners.Mean.Globally(),
            "latest": left | combiners.Latest.PerKey() | beam.Keys(),
            "regex": text | beam.Regex.matches("(o|q).*"),
            "batches": numbers | beam.BatchElements(min_batch_size=5) | "sum" >> beam.Map(sum),
        }

    found = harvest(spark_session, build)
    joined = [("a", [1, 2], ["x"]), ("b", [3], []), ("c", [], ["y"])]
    assert found["joined"] == found["joined tuple"] == joined
    assert found["distinct"] == list(range(100))
    assert found["top"] == [[98, 99, 99]]
    assert found["largest"] == [(3, ["the"]), (4, ["over"]), (5, ["quick"])]
    assert found["sample"] == [7]
    assert found["count"] == [200]
    assert found["per element"] == sorted((word, words.count(word)) for word in set(words))
    assert found["list"] == [sorted(list(range(100)) * 2)]
    assert found["dict"] == [{"1": 1, "2": 2, "3": 3}]
    assert found["set"] == [len(set(words))]
    assert found["mean"] == [49.5]
    assert found["latest"] == ["a", "b"]
    assert found["regex"] == ["over", "quick"]
    assert sum(found["batches"]) == 9900


def test_rows_with_a_schema(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = (
            p
            | beam.Create(
                [("veg", "kale", 1.5, 2), ("veg", "leek", 2.0, 1), ("fruit", "pear", 0.5, 6)]
            )
            | beam.Select(
                kind=lambda x: str(x[0]),
                name=lambda x: str(x[1]),
                price=lambda x: float(x[2]),
                count=lambda x: int(x[3]),
            )
        )
        return {
            "sums": rows
            | beam.GroupBy("kind")
            .aggregate_field("count", sum, "total")
            .aggregate_field(lambda row: row.price * row.count, max, "dearest")
            | beam.Map(lambda row: (row.kind, row.total, row.dearest)),
            "plain": rows
            | "group" >> beam.GroupBy("kind")
            | "names" >> beam.MapTuple(lambda key, group: (key, sorted(row.name for row in group))),
            "spread": rows
            | "pick" >> beam.Select("name", "count")
            | beam.Reshuffle()
            | "show" >> beam.Map(lambda row: (row.name, row.count)),
            "made": p
            | "made" >> beam.Create([1, 2])
            | beam.Map(lambda n: beam.Row(n=n, text=str(n)))
            | "spread made" >> beam.Reshuffle()
            | "show made" >> beam.Map(lambda row: (row.n, row.text)),
        }

    found = harvest(spark_session, build)
    assert found["sums"] == [("fruit", 6, 3.0), ("veg", 3, 3.0)]
    assert found["plain"] == [("fruit", ["pear"]), ("veg", ["kale", "leek"])]
    assert found["spread"] == [("kale", 2), ("leek", 1), ("pear", 6)]
    assert found["made"] == [(1, "1"), (2, "2")]


def test_panes_on_time_that_are_empty(spark_session: Any) -> None:
    """There is nothing to merge where accumulators are combined before the grouping."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        trigger = AfterWatermark(early=AfterCount(1))
        windowed = beam.WindowInto(
            FixedWindows(10), trigger=trigger, accumulation_mode=AccumulationMode.DISCARDING
        )
        pairs = p | beam.Create([("a", 1), ("a", 2)]) | windowed
        return {
            "means": pairs | beam.CombinePerKey(Mean()),
            "sets": pairs
            | "sets" >> beam.CombinePerKey(combiners.ToSetCombineFn())
            | beam.MapTuple(lambda key, values: (key, sorted(values))),
            "top": pairs | combiners.Top.LargestPerKey(1),
            "sums": pairs | "sums" >> beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build)
    assert found["means"] == [("a", -1.0), ("a", 1.5)]
    assert found["sets"] == [("a", []), ("a", [1, 2])]
    assert found["top"] == [("a", []), ("a", [2])]
    assert found["sums"] == [("a", 0), ("a", 3)]


EQUAL_IN_PYTHON = [True, 1, 1.0, False, 0, 0.0, -0.0]


def test_keys_that_only_python_confuses(spark_session: Any) -> None:
    """Beam compares encodings; in one task, so that a combiner meets all of them."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        keys = p | beam.Create([*EQUAL_IN_PYTHON, *EQUAL_IN_PYTHON], reshuffle=False)
        pairs = keys | "pair" >> beam.Map(lambda key: (key, 1))
        nested = keys | "nest" >> beam.Map(lambda key: (("k", (key,)), 1))
        windowed = pairs | beam.WindowInto(FixedWindows(5))
        sums = {
            "grouped": pairs | beam.GroupByKey() | "sum" >> beam.MapTuple(lambda k, v: (k, sum(v))),
            "combined": pairs | "combine" >> beam.CombinePerKey(sum),
            "windowed": windowed | "in windows" >> beam.CombinePerKey(sum),
            "nested": nested
            | "combine nested" >> beam.CombinePerKey(sum)
            | "bare" >> beam.MapTuple(lambda key, count: (key[1][0], count)),
            "counted": keys | beam.combiners.Count.PerElement(),
            "looked up": keys
            | "each once" >> beam.Distinct()
            | beam.Map(lambda key, side: (key, sum(side[key])), AsMultiMap(pairs)),
        }
        return {
            **{name: each | f"show {name}" >> beam.Map(repr) for name, each in sums.items()},
            "distinct": keys | beam.Distinct() | "show" >> beam.Map(repr),
        }

    found = harvest(spark_session, build, "--parallelism=1")
    twice = sorted(repr((key, 2)) for key in EQUAL_IN_PYTHON)
    for way in ("grouped", "combined", "windowed", "nested", "counted", "looked up"):
        assert sorted(found[way]) == twice, way
    assert sorted(found["distinct"]) == sorted(map(repr, EQUAL_IN_PYTHON))

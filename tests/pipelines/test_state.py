"""User state: each kind, in each window, over few and many keys."""

import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows
from apache_beam.utils.timestamp import Timestamp

from tests.harvest import RARE_HARNESSES, SPREAD, harvest
from tests.stateful import Collect, CountGroups, Mixed, Number, timed


def test_many_keys(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(f"k{n % 700}", n) for n in range(5_000)])
        return {
            "numbered": pairs | beam.ParDo(Number()),
            "collected": pairs | beam.ParDo(Collect()),
        }

    found = harvest(spark_session, build, SPREAD)
    assert found["numbered"] == sorted((f"k{n % 700}", n // 700) for n in range(5_000))
    assert found["collected"] == sorted((f"k{n}", list(range(n, 5_000, 700))) for n in range(700))
    assert len(found.partitions("numbered")) > 1


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (FixedWindows(10), {(0.0, 10.0): [1, 9], (10.0, 20.0): [12]}),
        (
            SlidingWindows(20, 10),
            {(-10.0, 10.0): [1, 9], (0.0, 20.0): [1, 9, 12], (10.0, 30.0): [12]},
        ),
        # Windows that merge do so in a grouping; before it each element has its own.
        (Sessions(5), {(1.0, 6.0): [1], (9.0, 14.0): [9], (12.0, 17.0): [12]}),
    ],
)
def test_state_is_by_window(spark_session: Any, windows: Any, expected: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | timed([(key, n) for key in "ab" for n in (12, 1, 9)])
        return {"out": pairs | beam.WindowInto(windows) | beam.ParDo(Collect())}

    kept = harvest(spark_session, build).kept["out"]
    assert sorted(
        (each.value[0], (float(each.window.start), float(each.window.end)), each.value[1])
        for each in kept
    ) == sorted((key, window, values) for key in "ab" for window, values in expected.items())
    for each in kept:
        assert each.timestamp == each.window.end


def test_every_kind_of_state(spark_session: Any) -> None:
    """Each key gets its elements in an order of Spark's; a sorted group gives a certain one."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(key, n) for key in "ab" for n in (1, 2, 3, 4, 7, 8)])
        in_order = (
            pairs
            | beam.GroupByKey()
            | beam.FlatMapTuple(lambda key, values: [(key, n) for n in sorted(values)])
        )
        return {"seen": in_order | beam.ParDo(Mixed())}

    assert harvest(spark_session, build)["seen"] == sorted(
        (key, *seen)
        for key in "ab"
        for seen in [
            (1, None, [], [], 0, []),
            (2, "1", [1, 1], [1], 1, [(1, "1!")]),
            (3, "2", [1, 1, 2, 2], [0, 1], 3, [(1, "1!"), (2, "2!")]),
            (4, "3", [1, 1, 2, 2, 3, 3], [0, 1], 6, [(1, "1!"), (2, "2!"), (3, "3!")]),
            (
                7,
                "4",
                [1, 1, 2, 2, 3, 3, 4, 4],
                [0, 1],
                10,
                [(1, "1!"), (2, "2!"), (3, "3!"), (4, "4!")],
            ),
            (8, None, [], [], 0, [(1, "1!"), (4, "4!")]),
        ]
    )


class Hoard(beam.DoFn):  # type: ignore[misc]
    """Piles up more than a worker keeps in memory, in several states of one key."""

    BAG = BagStateSpec("bag", BytesCoder())
    COUNT = CombiningValueStateSpec("count", sum)
    TIMES = OrderedListStateSpec("times", VarIntCoder())
    LAST = ReadModifyWriteStateSpec("last", VarIntCoder())
    SEEN = SetStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        count: Any = beam.DoFn.StateParam(COUNT),
        times: Any = beam.DoFn.StateParam(TIMES),
        last: Any = beam.DoFn.StateParam(LAST),
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        _, number = pair
        bag.add(number.to_bytes(4, "big") * 1500)
        count.add(1)
        times.add((Timestamp(number), number))
        last.write(max(number, last.read() or 0))
        seen.add(number % 10)
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        count: Any = beam.DoFn.StateParam(COUNT),
        times: Any = beam.DoFn.StateParam(TIMES),
        last: Any = beam.DoFn.StateParam(LAST),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[Any]:
        once = sum(int.from_bytes(value[:4], "big") for value in bag.read())
        again = sum(1 for _ in bag.read())
        in_order = [number for _, number in times.read()]
        assert in_order == sorted(in_order)
        yield key, again, once, count.read(), len(in_order), last.read(), len(seen.read())


def test_one_key_piles_up_more_than_fits_in_memory(spark_session: Any) -> None:
    """20,000 elements of 6 kB: the state is written and spilled on the way."""
    size = 20_000

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(0, size, 1000)) | beam.FlatMap(lambda n: range(n, n + 1000))
        return {"out": numbers | beam.Map(lambda n: ("key", n)) | beam.ParDo(Hoard())}

    total = size * (size - 1) // 2
    assert harvest(spark_session, build)["out"] == [("key", size, total, size, size, size - 1, 10)]


@pytest.mark.parametrize("windows", [FixedWindows(10), Sessions(5)], ids=["fixed", "sessions"])
def test_state_behind_a_grouping(spark_session: Any, windows: Any) -> None:
    """The groups of a key come together, whatever their windows; each window has its state."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        grouped = (
            p
            | timed([(key, n) for key in ("a", "b") for n in (1, 2, 11, 12, 25)])
            | beam.WindowInto(windows)
            | beam.GroupByKey()
        )
        return {"out": grouped | beam.ParDo(CountGroups()), "groups": grouped}

    found = harvest(spark_session, build)
    assert found["out"] == [(key, 1, n) for key in "ab" for n in ([1, 2], [11, 12], [25])]
    assert len(found["groups"]) == 6


def test_state_behind_a_reshuffle_a_flatten_and_with_a_side_input(spark_session: Any) -> None:
    class Weigh(Number):
        def process(  # type: ignore[override]
            self,
            pair: tuple[str, int],
            weights: dict[str, int],
            next_state: Any = beam.DoFn.StateParam(Number.NEXT),
        ) -> Iterator[tuple[str, int]]:
            for key, number in super().process(pair, next_state):
                yield key, number * weights[key]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        weights = p | "weights" >> beam.Create([("a", 10), ("b", 100)])
        one = p | "one" >> beam.Create([("a", 0), ("b", 0)]) | beam.Reshuffle()
        other = p | "other" >> beam.Create([("a", 0)] * 3)
        weighed = (one, other) | beam.Flatten() | beam.ParDo(Weigh(), beam.pvalue.AsDict(weights))
        return {"weighed": weighed, "alone": one | "alone" >> beam.ParDo(Number())}

    found = harvest(spark_session, build)
    assert found["weighed"] == [("a", 0), ("a", 10), ("a", 20), ("a", 30), ("b", 0)]
    assert found["alone"] == [("a", 0), ("b", 0)]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_keys_without_types_behind_a_reshuffle(spark_session: Any, flags: tuple[str, ...]) -> None:
    """Beam gives pairs a coder behind the Reshuffle only, in front of the step with state."""

    def pair_of(text: str) -> Any:
        return tuple(json.loads(text))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        texts = p | beam.Create([f'["{key}", {n}]' for n in range(4) for key in "ab"])
        pairs = texts | beam.Map(pair_of) | beam.Reshuffle()
        return {"batches": pairs | beam.GroupIntoBatches(4), "first": pairs | beam.Map(str)}

    found = harvest(spark_session, build, *flags)
    assert [(key, sorted(batch)) for key, batch in found["batches"]] == [
        ("a", [0, 1, 2, 3]),
        ("b", [0, 1, 2, 3]),
    ]
    assert len(found["first"]) == 8


def test_two_stateful_steps_in_a_row_and_side_by_side(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("a", 0), ("b", 0), ("a", 0)])
        first = pairs | "first" >> beam.ParDo(Number())
        swapped = first | beam.MapTuple(lambda key, number: (str(number), key))
        return {
            "second": swapped | "second" >> beam.ParDo(Number()),
            "beside": pairs | "beside" >> beam.ParDo(Collect()),
        }

    found = harvest(spark_session, build)
    assert found["second"] == [("0", 0), ("0", 1), ("1", 0)]
    assert found["beside"] == [("a", [0, 0]), ("b", [0])]


class Forget(beam.DoFn):  # type: ignore[misc]
    """Its state counts how often it was made and torn down."""

    class Counting(beam.CombineFn):  # type: ignore[misc]
        def setup(self) -> None:
            self.is_up = True

        def create_accumulator(self) -> int:
            assert self.is_up
            return 0

        def add_input(self, accumulator: int, value: int) -> int:
            return accumulator + value

        def merge_accumulators(self, accumulators: Any) -> int:
            return sum(accumulators)

        def extract_output(self, accumulator: int) -> int:
            assert self.is_up
            return accumulator

        def teardown(self) -> None:
            assert self.is_up
            self.is_up = False

    SUM = CombiningValueStateSpec("sum", VarIntCoder(), Counting())

    def process(
        self, pair: tuple[int, int], total: Any = beam.DoFn.StateParam(SUM)
    ) -> Iterator[tuple[int, int]]:
        total.add(pair[1])
        yield pair[0], total.read()


def test_combine_fns_live_as_long_as_their_state(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(n % 50, 1) for n in range(200)])
        return {"out": pairs | beam.ParDo(Forget())}

    expected = sorted((key, n) for key in range(50) for n in (1, 2, 3, 4))
    assert harvest(spark_session, build)["out"] == expected


def test_batches_of_groups(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(key, n) for key in "ab" for n in range(25)])
        windowed = pairs | beam.WindowInto(FixedWindows(10))
        sizes = beam.MapTuple(lambda key, batch: len(list(batch)))
        return {
            "global": pairs | "global" >> beam.GroupIntoBatches(10) | "1" >> sizes,
            "windowed": windowed | "windowed" >> beam.GroupIntoBatches(10) | "2" >> sizes,
            "in time": pairs
            | "in time" >> beam.GroupIntoBatches(10, max_buffering_duration_secs=100)
            | "3" >> sizes,
            "sharded": pairs
            | "sharded" >> beam.GroupIntoBatches.WithShardedKey(1000)
            | beam.FlatMapTuple(lambda sharded, batch: [(sharded.key, n) for n in batch]),
        }

    found = harvest(spark_session, build)
    assert found["global"] == found["windowed"] == found["in time"] == [5, 5, 10, 10, 10, 10]
    assert found["sharded"] == sorted((key, n) for key in "ab" for n in range(25))


def test_without_duplicates(spark_session: Any) -> None:
    from apache_beam.transforms.deduplicate import Deduplicate, DeduplicatePerKey

    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = p | beam.Create([n % 5 for n in range(50)])
        pairs = p | "pairs" >> beam.Create([(n % 3, "v") for n in range(30)])
        return {
            "values": values | Deduplicate(processing_time_duration=60),
            "pairs": pairs | DeduplicatePerKey(event_time_duration=60),
        }

    found = harvest(spark_session, build)
    assert found["values"] == list(range(5))
    assert found["pairs"] == [(key, "v") for key in range(3)]

"""Window fns of the user's own, with windows and coders of their own; mixed windows."""

import datetime
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.environments import SDK_VERSION_CAPABILITY_PREFIX
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAny,
    AfterCount,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    NonMergingWindowFn,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import Harvest, harvest, harvest_on, run


class Trip(BoundedWindow):  # type: ignore[misc]
    """From a first to a last second, with how many stops: it is no interval."""

    def __init__(self, first: int, last: int, stops: int = 1) -> None:
        super().__init__(Timestamp(last + 5))
        self.parts = first, last, stops

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trip) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return "trip from {} to {}, {} stop(s)".format(*self.parts)


class TripCoder(Coder):  # type: ignore[misc]
    def encode(self, value: Trip) -> bytes:
        return ",".join(map(str, value.parts)).encode()

    def decode(self, encoded: bytes) -> Trip:
        return Trip(*map(int, encoded.decode().split(",")))

    def is_deterministic(self) -> bool:
        return True


class Trips(WindowFn):  # type: ignore[misc]
    """Stops within five seconds of each other are one trip."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[Trip]:
        second = context.timestamp.micros // 1_000_000
        return [Trip(second, second)]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        together: list[Trip] = []
        for trip in sorted(merge_context.windows, key=lambda trip: trip.parts):
            if together and trip.parts[0] > together[-1].parts[1] + 5:
                self._join(together, merge_context)
                together = []
            together.append(trip)
        self._join(together, merge_context)

    def _join(self, trips: list[Trip], merge_context: WindowFn.MergeContext) -> None:
        if len(trips) > 1:
            stops = sum(trip.parts[2] for trip in trips)
            whole = Trip(trips[0].parts[0], max(trip.parts[1] for trip in trips), stops)
            merge_context.merge(trips, whole)

    def get_window_coder(self) -> TripCoder:
        return TripCoder()


class CalendarMonth(BoundedWindow):  # type: ignore[misc]
    def __init__(self, year: int, month: int) -> None:
        following = datetime.datetime(
            year + month // 12, month % 12 + 1, 1, tzinfo=datetime.timezone.utc
        )
        super().__init__(Timestamp(int(following.timestamp())))
        self.parts = year, month

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalendarMonth) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return "{}-{:02}".format(*self.parts)


class CalendarMonthCoder(Coder):  # type: ignore[misc]
    def encode(self, value: CalendarMonth) -> bytes:
        return repr(value).encode()

    def decode(self, encoded: bytes) -> CalendarMonth:
        year, month = map(int, encoded.decode().split("-"))
        return CalendarMonth(year, month)

    def is_deterministic(self) -> bool:
        return True


class CalendarMonths(NonMergingWindowFn):  # type: ignore[misc]
    """Months of 28 to 31 days."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[CalendarMonth]:
        day = context.timestamp.to_utc_datetime()
        return [CalendarMonth(day.year, day.month)]

    def get_window_coder(self) -> CalendarMonthCoder:
        return CalendarMonthCoder()


def _panes(found: Harvest, label: str) -> list[tuple[str, ...]]:
    return sorted(
        (
            repr(each.value),
            str(each.window),
            str(each.timestamp.micros // 1000),  # what an exchange keeps
            f"{each.pane.timing} {each.pane.index}",  # Beam's runner does not know the last one
        )
        for each in found.kept[label]
    )


def _same_as_beams(spark: Any, build: Any) -> Harvest:
    ours, beams = harvest(spark, build), harvest_on(FnApiRunner(), build)
    for label in beams.kept:
        assert _panes(ours, label) == _panes(beams, label), label
        assert beams.kept[label], label
    return ours


def _listed(key: Any, values: Iterable[Any]) -> tuple[Any, list[Any]]:
    return key, sorted(values)


def _stops(pipeline: beam.Pipeline, times: list[int]) -> beam.PCollection:
    stops = pipeline | beam.Create([(key, time) for key in "ab" for time in times])
    return stops | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))


@pytest.mark.parametrize(("at", "place"), [("EOW", None), ("EARLIEST", 0), ("LATEST", -1)])
def test_merging_windows_with_a_separate_coder(
    spark_session: Any, at: str, place: int | None
) -> None:
    """Beam's FnApiRunner cannot run them: its stand-ins for windows do not go through the coder."""
    trips = [list(range(0, 30, 3)), [60, 64, 68], [100]]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        stops = _stops(p, [time for trip in trips for time in trip]) | beam.WindowInto(
            Trips(), timestamp_combiner=getattr(TimestampCombiner, f"OUTPUT_AT_{at}")
        )
        return {
            "as they are": stops,
            "spread": stops | beam.Reshuffle(),
            "groups": stops | beam.GroupByKey() | beam.MapTuple(_listed),
            "sums": stops | beam.CombinePerKey(sum),
            "counts": stops | beam.combiners.Count.PerKey(),
        }

    found = harvest(spark_session, build)
    for label in ("as they are", "spread"):
        assert sorted((each.value, str(each.window)) for each in found.kept[label]) == sorted(
            ((key, time), str(Trip(time, time))) for key in "ab" for trip in trips for time in trip
        )
    whole = [Trip(trip[0], trip[-1], len(trip)) for trip in trips]
    for label, of in (("groups", list), ("sums", sum), ("counts", len)):
        assert sorted((each.value, str(each.window)) for each in found.kept[label]) == sorted(
            ((key, of(trip)), str(window))
            for key in "ab"
            for trip, window in zip(trips, whole, strict=True)
        ), label
    for label in ("groups", "sums"):
        ends = [window.end.micros / 1e6 - 0.001 for window in whole]
        times = ends if place is None else [trip[place] for trip in trips]
        stamps = [time for _, time in found.timed(label)]
        assert sorted(stamps) == pytest.approx(sorted(2 * times), abs=0.002), label


def test_merging_windows_that_triggers_fire_in(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        stops = _stops(p, [0, 3, 6, 9, 60, 64]) | beam.WindowInto(
            Trips(),
            trigger=AfterWatermark(early=AfterCount(3)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )
        return {"groups": stops | beam.GroupByKey() | beam.MapTuple(_listed)}

    found = harvest(spark_session, build)
    panes = sorted((each.value, str(each.window), each.pane.index) for each in found.kept["groups"])
    first, second = str(Trip(0, 9, 4)), str(Trip(60, 64, 2))
    assert panes == [
        pane
        for key in "ab"
        for pane in [
            ((key, [0, 3, 6, 9]), first, 0),
            ((key, [0, 3, 6, 9]), first, 1),
            ((key, [60, 64]), second, 0),
        ]
    ]


def test_calendar_windows(spark_session: Any) -> None:
    begin = datetime.datetime(2023, 12, 1, tzinfo=datetime.timezone.utc)
    days = [begin + datetime.timedelta(days=day) for day in range(31 + 31 + 29 + 1)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        daily = (
            p
            | beam.Create([int(day.timestamp()) for day in days])
            | beam.Map(lambda time: TimestampedValue(("day", 1), time))
            | beam.WindowInto(CalendarMonths())
        )
        sums = daily | beam.CombinePerKey(sum)
        beside = beam.Map(
            lambda pair, sums: (pair, sorted(sums)), beam.pvalue.AsIter(sums | beam.Values())
        )
        return {
            "sums": sums,
            "groups": daily | beam.GroupByKey() | beam.MapTuple(_listed),
            "beside": daily | "beside" >> beside,
        }

    found = harvest(spark_session, build)
    days_of = {"2023-12": 31, "2024-01": 31, "2024-02": 29, "2024-03": 1}
    assert {str(each.window): each.value[1] for each in found.kept["sums"]} == days_of
    assert {str(each.window): len(each.value[1]) for each in found.kept["groups"]} == days_of
    beside = sorted((str(each.window), each.value) for each in found.kept["beside"])
    assert beside == [
        (month, (("day", 1), [count])) for month, count in days_of.items() for _ in range(count)
    ]


class Closing:
    """Sets in each windowing what Python's SDK has no word for."""

    def __init__(self, behavior: int, sdk: str = "") -> None:
        self._behavior, self._sdk = behavior, sdk

    def on(self, runner: Any) -> Any:
        run = runner.run_portable_pipeline

        def run_with(proto: Any, options: Any) -> Any:
            for strategy in proto.components.windowing_strategies.values():
                strategy.closing_behavior = self._behavior
                if self._sdk:
                    strategy.environment_id = "of another SDK"
            if self._sdk:
                environment = proto.components.environments["of another SDK"]
                environment.capabilities.append(SDK_VERSION_CAPABILITY_PREFIX + self._sdk)
            return run(proto, options)

        runner.run_portable_pipeline = run_with
        return runner


@pytest.mark.parametrize("behavior", ["EMIT_ALWAYS", "EMIT_IF_NONEMPTY"])
def test_closing_behaviors(spark_session: Any, behavior: str) -> None:
    """Beam's trigger code knows none: no pane is fired for being the last one, empty or not."""
    closing = Closing(getattr(beam_runner_api_pb2.ClosingBehavior, behavior))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(key, time) for key in (6, 7) for time in range(key)])
        pairs |= beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
        by_trigger = {
            "counting": Repeatedly(AfterCount(3)),
            "each": Repeatedly(AfterAny(AfterCount(1), AfterWatermark())),
            "early": AfterWatermark(early=AfterCount(3)),
            "early and late": AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
        }
        return {
            label: pairs
            | f"into {label}"
            >> beam.WindowInto(
                FixedWindows(10), trigger=trigger, accumulation_mode=AccumulationMode.DISCARDING
            )
            | f"group {label}" >> beam.GroupByKey()
            | f"list {label}" >> beam.MapTuple(_listed)
            for label, trigger in by_trigger.items()
        }

    ours = harvest_on(closing.on(SparkPortableRunner(spark=spark_session)), build)
    beams = harvest_on(closing.on(FnApiRunner()), build)
    for label in beams.kept:
        assert _panes(ours, label) == _panes(beams, label), label
        assert len(beams.kept[label]) >= 2, label


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "epochs"])
def test_the_last_pane_of_a_strategy_of_java_may_be_empty(
    spark_session: Any, is_streaming: bool
) -> None:
    always = beam_runner_api_pb2.ClosingBehavior.EMIT_ALWAYS
    closing = Closing(always, "apache/beam_java17_sdk:2.65.0")
    each = [TimestampedValue(("a", time), time) for time in range(6)]
    events = Stream().with_output_types(tuple[str, int]).add_elements(each)
    window_into = beam.WindowInto(
        FixedWindows(10),
        trigger=Repeatedly(AfterCount(6)),
        accumulation_mode=AccumulationMode.DISCARDING,
    )

    def build(p: beam.Pipeline) -> dict[str, Any]:
        made = p | (events.advance_watermark_to_infinity() if is_streaming else beam.Create(each))
        pairs = made | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        return {"panes": pairs | window_into | beam.GroupByKey() | beam.MapTuple(_listed)}

    found = harvest_on(closing.on(SparkPortableRunner(spark=spark_session)), build)
    assert found["panes"] == [("a", []), ("a", [0, 1, 2, 3, 4, 5])]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FixedWindows(5), FixedWindows(7)),
        (SlidingWindows(10, 5), FixedWindows(5)),
    ],
)
def test_unlike_windows_in_one_collection_until_they_are_set_again(
    spark_session: Any, one: Any, other: Any
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("a", time) for time in range(12)])
        pairs |= beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
        mixed = (
            pairs | "one" >> beam.WindowInto(one),
            pairs | "other" >> beam.WindowInto(other),
        ) | beam.Flatten()
        again = mixed | "again" >> beam.WindowInto(FixedWindows(6))
        return {
            "mixed": mixed | "look" >> beam.Map(lambda pair: pair),
            "sums": again | beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build)
    expected = [
        (("a", time), str(window))
        for window_fn in (one, other)
        for time in range(12)
        for window in window_fn.assign(WindowFn.AssignContext(Timestamp(time), ("a", time)))
    ]
    assert sorted((each.value, str(each.window)) for each in found.kept["mixed"]) == sorted(
        expected
    )
    assert len({window for _, window in expected}) > 2
    assert found["sums"] == sorted(
        ("a", sum(time for (_, time), _ in expected if time // 6 == part)) for part in range(2)
    )


class Refusing(Trips):
    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        raise ValueError("not these")


@pytest.mark.parametrize("grouping", [beam.GroupByKey(), beam.CombinePerKey(sum)])
def test_windows_that_do_not_merge_name_the_step_that_groups(
    spark_session: Any, grouping: Any
) -> None:
    def build(p: beam.Pipeline) -> Any:
        windowed = _stops(p, [1, 2]) | beam.WindowInto(Refusing())
        return windowed | "Gather" >> grouping | "Look" >> beam.Map(repr)

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build)
    assert raised.value.step.startswith("Gather")
    assert raised.value.cause == "ValueError: not these"

"""Windows whose coder only an SDK harness knows: they are bytes with an end to the runner."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder, StrUtf8Coder, VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import (
    FixedWindows,
    IntervalWindow,
    Sessions,
    TimestampedValue,
    WindowFn,
)

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import BEAMS_OWN, REUSED_PROCESS, Harvest, harvest, run
from tests.spark.lanes import Lane, LaneCoder, Lanes
from tests.spark.of_the_sdk import OfTheSdk
from tests.spark.restrictions import RESTRICTION
from tests.stateful import Collect

EVERYWHERE = (
    pytest.param((), id="embedded"),
    pytest.param(REUSED_PROCESS, id="process"),
    pytest.param(BEAMS_OWN, id="Beam's own harness", marks=pytest.mark.rare),
)


class CoderOfTheSdk(OfTheSdk, LaneCoder):
    """Cannot be unpickled in a Python worker."""


class LanesOfTheSdk(OfTheSdk, Lanes):
    coder: Coder = CoderOfTheSdk()


class Joined(Lanes):
    """Both lanes of ten seconds become one."""

    def is_merging(self) -> bool:
        return True

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        tens: dict[int, list[Lane]] = {}
        for window in merge_context.windows:
            tens.setdefault(window.parts[0], []).append(window)
        for begin, lanes in tens.items():
            if len(lanes) > 1:
                merge_context.merge(lanes, Lane(begin, 0, " and odd"))


class JoinedOfTheSdk(OfTheSdk, Joined):
    coder: Coder = CoderOfTheSdk()


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts up to the time of an element. What is left after the first number is deferred."""

    def process(self, pair: tuple[str, int], tracker: Any = RESTRICTION) -> Iterable[Any]:
        number = begin = tracker.current_restriction().start
        while tracker.try_claim(number):
            yield pair[0], number
            number += 1
            if begin == 0:
                tracker.defer_remainder()
                return


TIMES = [1, 2, 3, 11, 13, 24]
IN_LANES = [[1, 3], [2], [11, 13], [24]]


def _created(p: beam.Pipeline) -> beam.PCollection:
    pairs = p | beam.Create([(key, time) for key in "ab" for time in TIMES])
    return pairs | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))


def _played(p: beam.Pipeline) -> beam.PCollection:
    stream = Stream(coder=beam.coders.TupleCoder([StrUtf8Coder(), VarIntCoder()]))
    for time in TIMES:
        stream = stream.advance_watermark_to(time - 1).add_elements(
            [TimestampedValue((key, time), time) for key in "ab"]
        )
    return p | stream.advance_watermark_to_infinity()


def _listed(key: Any, values: Iterable[Any]) -> tuple[Any, list[Any]]:
    return key, sorted(values)


def _in_windows(found: Harvest, label: str) -> list[tuple[Any, str]]:
    return sorted((each.value, str(each.window)) for each in found.kept[label])


@pytest.mark.parametrize("source", [_created, _played], ids=["batch", "epochs"])
@pytest.mark.parametrize("flags", EVERYWHERE)
def test_windows_of_an_sdk(
    spark_session: Any,
    flags: tuple[str, ...],
    source: Callable[[beam.Pipeline], beam.PCollection],
) -> None:
    lanes, joined = (LanesOfTheSdk(), JoinedOfTheSdk()) if flags else (Lanes(), Joined())

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = source(p) | beam.WindowInto(lanes)
        side = beam.pvalue.AsList(pairs | beam.Filter(lambda pair: pair[0] == "b") | beam.Values())
        beside = beam.Map(lambda pair, others: (pair, sorted(others)), side)
        return {
            "groups": pairs | beam.Reshuffle() | beam.GroupByKey() | beam.MapTuple(_listed),
            "sums": pairs | beam.CombinePerKey(sum),
            "state": pairs | beam.ParDo(Collect()),
            "beside": pairs | "look up" >> beside,
            "counted": pairs | beam.ParDo(Counts()),
            "merged": pairs
            | "join" >> beam.WindowInto(joined)
            | "merge" >> beam.GroupByKey()
            | "listed" >> beam.MapTuple(_listed),
        }

    found = harvest(spark_session, build, *flags)
    names = {str(times): str(Lane(times[0] // 10 * 10, times[0] % 2)) for times in IN_LANES}
    for label, of in (("groups", list), ("sums", sum), ("state", list)):
        assert _in_windows(found, label) == sorted(
            ((key, of(times)), names[str(times)]) for key in "ab" for times in IN_LANES
        ), label
    assert _in_windows(found, "beside") == sorted(
        (((key, time), times), names[str(times)])
        for key in "ab"
        for times in IN_LANES
        for time in times
    )
    assert _in_windows(found, "counted") == sorted(
        ((key, number), names[str(times)])
        for key in "ab"
        for times in IN_LANES
        for time in times
        for number in range(time)
    )
    assert _in_windows(found, "merged") == sorted(
        ((key, times), lane)
        for key in "ab"
        for times, lane in (
            ([1, 2, 3], "even of 0 and odd"),
            ([11, 13], "odd of 10"),
            ([24], "even of 20"),
        )
    )


class InEven(OfTheSdk):
    """Maps windows to the even lane of the time at which they begin."""

    def __call__(self, window: Any) -> Lane:
        if window.start == 30:
            raise ValueError("nothing is looked up from here")
        return Lane(int(window.start), 0)


class InEvenHere(InEven):
    def __reduce__(self) -> Any:
        return type(self), ()


class AsIterBy(beam.pvalue.AsIter):  # type: ignore[misc]
    """A side input with a mapping of windows of its own."""

    def __init__(self, pcoll: beam.PCollection, mapping: Callable[[Any], Any]) -> None:
        super().__init__(pcoll)
        self._window_mapping_fn = mapping


def _looked_up(p: beam.Pipeline, flags: tuple[str, ...], stream: Stream) -> dict[str, Any]:
    events = p | stream
    side = events["side"] | "into lanes" >> beam.WindowInto(
        LanesOfTheSdk() if flags else Lanes(),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    )
    view = AsIterBy(side, InEven() if flags else InEvenHere())
    main = events["main"] | "into tens" >> beam.WindowInto(FixedWindows(10))
    return {
        "plain": main | "look up" >> beam.Map(lambda each, seen: (each, sorted(seen)), view),
        "keyed": main | beam.WithKeys("key") | "with state" >> beam.ParDo(WithState(), view),
    }


class WithState(beam.DoFn):  # type: ignore[misc]
    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(
        self, pair: tuple[str, int], view: Any, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterable[Any]:
        seen.add(pair[1])
        yield sorted(seen.read()), sorted(view)


class TenBefore(OfTheSdk):
    """Maps windows to the ten seconds before those in which they end."""

    def __call__(self, window: Any) -> IntervalWindow:
        begin = window.max_timestamp().micros // 10_000_000 * 10 - 10
        return IntervalWindow(begin, begin + 10)


class TenBeforeHere(TenBefore):
    def __reduce__(self) -> Any:
        return type(self), ()


def _at(*times: int) -> list[TimestampedValue]:
    return [TimestampedValue(time, time) for time in times]


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_windows_of_side_inputs_are_those_that_the_pipeline_says(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    """In epochs: an element waits for the window that it looks up, and for no other one."""
    stream = (
        Stream(coder=VarIntCoder())
        .add_elements(_at(3, 4), tag="side")
        .add_elements(_at(5, 12), tag="main")
        .add_elements(_at(6), tag="side")
        .add_elements(_at(7), tag="main")
        .add_elements(_at(14, 15), tag="side")
        .advance_watermark_to_infinity("side")
        .advance_watermark_to_infinity("main")
    )
    found = harvest(spark_session, lambda p: _looked_up(p, flags, stream), *flags)
    assert sorted(found["plain"]) == [(5, [4]), (7, [4, 6]), (12, [14])]
    assert sorted(found["keyed"]) == [([5], [4]), ([5, 7], [4, 6]), ([12], [14])]


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_an_error_of_the_mapping_names_the_step(spark_session: Any, flags: tuple[str, ...]) -> None:
    stream = (
        Stream(coder=VarIntCoder())
        .add_elements(_at(3, 4), tag="side")
        .add_elements(_at(35), tag="main")
        .advance_watermark_to_infinity("side")
        .advance_watermark_to_infinity("main")
    )
    with pytest.raises(BundleFailedError, match="nothing is looked up from here") as raised:
        run(spark_session, lambda p: _looked_up(p, flags, stream), *flags)
    assert raised.value.step in ("look up", "with state")


def _before(p: beam.Pipeline, flags: tuple[str, ...], windows: WindowFn) -> dict[str, Any]:
    events = p | (
        Stream(coder=VarIntCoder())
        .add_elements(_at(4, 14), tag="side")
        .advance_watermark_to_infinity("side")
        .advance_watermark_to(15, tag="main")
        .add_elements(_at(16), tag="main")
        .advance_watermark_to(28, tag="main")
        .add_elements(_at(29), tag="main")
        .advance_watermark_to_infinity("main")
    )
    side = events["side"] | "into tens" >> beam.WindowInto(FixedWindows(10))
    view = AsIterBy(side, TenBefore() if flags else TenBeforeHere())
    main = events["main"] | "windows" >> beam.WindowInto(windows)
    return {"seen": main | "look up" >> beam.Map(lambda each, seen: (each, list(seen)), view)}


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_windows_that_have_ended_are_kept_as_long_as_they_are_looked_up(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    found = harvest(spark_session, lambda p: _before(p, flags, FixedWindows(10)), *flags)
    assert sorted(found["seen"]) == [(16, [4]), (29, [14])]


def test_a_window_that_may_have_been_deleted_is_no_empty_one(spark_session: Any) -> None:
    with pytest.raises(BundleFailedError, match="may have been deleted") as raised:
        run(spark_session, lambda p: _before(p, (), Sessions(3)))
    assert raised.value.step == "look up"

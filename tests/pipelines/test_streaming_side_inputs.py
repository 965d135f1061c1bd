"""Side inputs of pipelines that run in epochs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.pvalue import AsDict, AsIter, AsList, AsSingleton
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner.recovery.manifest import decode
from tests.harvest import RARE_HARNESSES, harvest
from tests.spark.restrictions import RESTRICTION

ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


def numbers(*times: int) -> list[TimestampedValue]:
    return [TimestampedValue(time, time) for time in times]


def look_up(main: Any, view: Any) -> Any:
    return main | "look up" >> beam.Map(lambda number, some: (number, sorted(some)), view)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_bounded_side_input(spark_session: Any, flags: tuple[str, ...]) -> None:
    """The first elements wait for it, since it is there only after the epoch that makes it."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().add_elements(numbers(1, 2)).add_elements(numbers(3))
        events.advance_watermark_to_infinity()
        table = p | beam.Create([("x", 7), ("y", 8)])
        main = p | events
        return {
            "list": look_up(main, AsIter(table)),
            "dict": main | beam.Map(lambda number, some: (number, some["y"]), AsDict(table)),
        }

    found = harvest(spark_session, build, *flags)
    assert found["list"] == [(number, [("x", 7), ("y", 8)]) for number in (1, 2, 3)]
    assert found["dict"] == [(number, 8) for number in (1, 2, 3)]


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts its elements, and passes them on."""

    def __init__(self) -> None:
        self._seen = Metrics.counter("test", "seen")

    def process(self, element: int) -> Iterator[int]:
        yield element
        self._seen.inc()


def test_what_a_step_counts_is_its_own_although_the_next_one_begins(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().add_elements(numbers(1, 2)).add_elements(numbers(3, 4, 5))
        events.advance_watermark_to_infinity()
        counted = p | events | "count" >> beam.ParDo(Counts())
        return {"seen": look_up(counted, AsList(p | beam.Create([7])))}

    found = harvest(spark_session, build)
    assert found["seen"] == [(number, [7]) for number in range(1, 6)]
    counters = found.result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
    assert [(each.key.step, each.committed) for each in counters] == [("count", 5)]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_elements_wait_for_their_window(spark_session: Any, flags: tuple[str, ...]) -> None:
    """An element before its side input's window is closed does not see a part of it."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1, 11), tag="main").add_elements(numbers(2), tag="side")
        events.advance_watermark_to(5, tag="main").add_elements(numbers(3, 12), tag="side")
        events.advance_watermark_to(10, tag="side").add_elements(numbers(4), tag="main")
        events.add_elements(numbers(13), tag="side").advance_watermark_to(30, tag="side")
        events.add_elements(numbers(21), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        window = FixedWindows(10)
        main = found["main"] | "M" >> beam.WindowInto(window)
        return {"seen": look_up(main, AsList(found["side"] | "S" >> beam.WindowInto(window)))}

    assert harvest(spark_session, build, *flags)["seen"] == [
        (1, [2, 3]),
        (4, [2, 3]),
        (11, [12, 13]),
        (21, []),
    ]


def test_one_that_blocks_is_said(spark_session: Any) -> None:
    """Its trigger fires when it ends; what waits for it comes then."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = (
            Stream().add_elements(numbers(1, 2), tag="main").advance_watermark_to(5, tag="main")
        )
        events.add_elements(numbers(7), tag="side").advance_watermark_to_infinity("main")
        events.add_elements(numbers(8), tag="side").advance_watermark_to_infinity("side")
        played = p | events
        return {"seen": look_up(played["main"], AsIter(played["side"] | "rates" >> beam.Map(int)))}

    found = harvest(spark_session, build)
    assert found["seen"] == [(1, [7, 8]), (2, [7, 8])]
    (warning,) = (each.message_text for each in found.result.messages())
    assert warning.startswith(
        "look up: elements wait until the side input from rates ends, because "
    )


def test_what_waits_holds_the_watermark(spark_session: Any) -> None:
    """A group downstream does not close before the elements that wait are in it."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1, 2), tag="main").advance_watermark_to(40, tag="main")
        events.add_elements(numbers(5), tag="side").advance_watermark_to(10, tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        side = found["side"] | "S" >> beam.WindowInto(FixedWindows(10))
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        seen = look_up(main, AsList(side)) | beam.Map(lambda pair: ("k", pair[0]))
        return {"groups": seen | beam.GroupByKey() | beam.MapTuple(lambda _, some: sorted(some))}

    assert harvest(spark_session, build)["groups"] == [[1, 2]]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_side_input_that_changes(spark_session: Any, flags: tuple[str, ...]) -> None:
    """Each pane replaces the one before it; elements see the last one of an earlier epoch."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1), tag="main")
        events.add_elements(numbers(70), tag="side").add_elements(numbers(2), tag="main")
        events.add_elements(numbers(80), tag="side").add_elements(numbers(3), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        always = beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        rate = AsSingleton(found["side"] | always)
        return {"seen": found["main"] | beam.Map(lambda number, now: (number, now), rate)}

    assert harvest(spark_session, build, *flags)["seen"] == [(1, 70), (2, 70), (3, 80)]


def test_groups_with_a_side_input(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue(("a", n), n) for n in (1, 2, 11)])
        events.advance_watermark_to(10).advance_watermark_to_infinity()
        limit = AsSingleton(p | beam.Create([1]))
        groups = p | events | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()

        def above(group: tuple[str, Iterable[int]], least: int) -> tuple[str, list[int]]:
            return group[0], sorted(value for value in group[1] if value > least)

        return {"groups": groups | beam.Map(above, limit)}

    assert harvest(spark_session, build)["groups"] == [("a", [2]), ("a", [11])]


class Runs(beam.DoFn):  # type: ignore[misc]
    """Counts one step per bundle; its watermark is far past the windows of its elements."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        some: Any,
        tracker: Any = RESTRICTION,
        estimator: Any = ESTIMATOR,
    ) -> Iterator[tuple[int, list[int]]]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            estimator.set_watermark(Timestamp(1_000))
            yield position, sorted(some)
            tracker.defer_remainder(Duration(0.3))


def test_a_restriction_keeps_its_side_input(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        at_3 = beam.Map(lambda element: TimestampedValue(element, 3))
        table = p | "Table" >> beam.Create([7]) | "T" >> at_3
        main = p | beam.Create([("a", 4)]) | "M" >> at_3 | beam.WindowInto(FixedWindows(10))
        side = AsList(table | "S" >> beam.WindowInto(FixedWindows(10)))
        return {"seen": main | beam.ParDo(Runs(), side)}

    found = harvest(spark_session, build, "--batch_interval_millis=50")
    assert found["seen"] == [(position, [7]) for position in range(4)]


class Late(beam.DoFn):  # type: ignore[misc]
    """Gives what it has got at the end of its bundle."""

    def start_bundle(self) -> None:
        self._got: list[int] = []

    def process(self, number: int) -> None:
        self._got.append(number)

    def finish_bundle(self) -> Iterator[Any]:
        for number in self._got:
            yield GlobalWindows.windowed_value(number)


def test_what_comes_at_the_end_of_a_bundle_waits_too(spark_session: Any) -> None:
    """The step that it waits for has not begun then, and no source is left to wake it."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        ticks = p | PeriodicImpulse(0, 3, 1, apply_windowing=False)
        table = AsList(p | beam.Create([7]))
        late = ticks | beam.Map(int) | beam.Reshuffle() | beam.ParDo(Late())
        return {"seen": look_up(late, table)}

    assert harvest(spark_session, build)["seen"] == [(0, [7]), (1, [7]), (2, [7])]


def test_a_side_input_that_the_runner_makes(spark_session: Any) -> None:
    """No step stands between a TestStream, a GroupByKey or a Flatten and who looks it up."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"]).add_elements(numbers(1), tag="main")
        events.add_elements(numbers(5), tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        groups = p | beam.Create([("a", 1), ("a", 2)]) | beam.GroupByKey()
        flat = (found["side"], p | "More" >> beam.Create([6])) | beam.Flatten()
        main = found["main"]
        return {
            "played": main | "P" >> beam.Map(lambda _, some: sorted(some), AsList(found["side"])),
            "flat": main | "F" >> beam.Map(lambda _, some: sorted(some), AsList(flat)),
            "groups": main
            | "G" >> beam.Map(lambda _, some: [(k, sorted(v)) for k, v in some], AsList(groups)),
            "both": main
            | "B"
            >> beam.Map(
                lambda _, pairs, one: (len(pairs), sorted(one["a"])), AsList(groups), AsDict(groups)
            ),
            "none": main
            | "N" >> beam.Map(len_of, AsList(flat | beam.Filter(lambda number: number > 9))),
        }

    found = harvest(spark_session, build)
    assert found["played"] == [[5]]
    assert found["flat"] == [[5, 6]]
    assert found["groups"] == [[("a", [1, 2])]]
    assert found["both"] == [(1, [1, 2])]
    assert found["none"] == [0]


def len_of(_: int, some: list[int]) -> int:
    return len(some)


class Above(beam.DoFn):  # type: ignore[misc]
    """Keeps numbers in its state, and gives those above the side input at the end of a window."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        least: Any,
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        end.set(window.end)
        if pair[1] > min(least):
            seen.add(pair[1])

    @on_timer(END)  # type: ignore[untyped-decorator]
    def flush(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())


@pytest.mark.parametrize("is_grouped", [pytest.param(False, marks=pytest.mark.rare), True])
@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_state_and_timers_with_a_side_input(
    spark_session: Any, flags: tuple[str, ...], is_grouped: bool
) -> None:
    """What waits is not late, though the watermark has passed its window meanwhile."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1, 4, 12), tag="main").advance_watermark_to(50, tag="main")
        events.add_elements(numbers(2, 3, 11), tag="side").advance_watermark_to(10, tag="side")
        events.add_elements(numbers(15), tag="side").advance_watermark_to(20, tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        least = AsList(found["side"] | "S" >> beam.WindowInto(FixedWindows(10)))
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        pair = beam.Map(lambda number: ("a", number)).with_output_types(tuple[str, int])
        pairs = main | pair
        if is_grouped:
            unpack = beam.MapTuple(lambda key, values: (key, max(values)))
            pairs = pairs | beam.GroupByKey() | unpack.with_output_types(tuple[str, int])
        return {"above": pairs | beam.ParDo(Above(), least)}

    expected = [("a", [4]), ("a", [12])]
    assert harvest(spark_session, build, *flags)["above"] == expected


def test_a_failed_run_continues_with_what_waits(spark_session: Any, tmp_path: Path) -> None:
    flag = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    stop = tmp_path / "stop"
    stop.touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1), tag="main").add_elements(numbers(5), tag="side")
        events.advance_watermark_to(10, tag="side").add_elements(numbers(12), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")

        def check(number: int) -> int:
            if number == 12 and stop.exists():
                raise RuntimeError("stopped")
            return number

        found = p | events
        side = found["side"] | "S" >> beam.WindowInto(FixedWindows(10))
        main = found["main"] | beam.Map(check) | "M" >> beam.WindowInto(FixedWindows(10))
        return {"seen": look_up(main, AsList(side))}

    with pytest.raises(RuntimeError, match="stopped"):
        harvest(spark_session, build, flag)
    stop.unlink()
    assert harvest(spark_session, build, flag)["seen"] == [(12, [])]


def test_windows_that_are_over_go(spark_session: Any, tmp_path: Path) -> None:
    """Their elements come too late; those before their lateness has passed do not."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1, 11, 21), tag="side")
        events.advance_watermark_to(90, tag="side").add_elements(numbers(2, 12), tag="main")
        events.advance_watermark_to(14, tag="main").add_elements(numbers(3), tag="main")
        events.advance_watermark_to(27, tag="main").add_elements(numbers(4, 13, 22), tag="main")
        events.advance_watermark_to(60, tag="main").advance_processing_time(1)
        found = p | events
        side = found["side"] | "S" >> beam.WindowInto(FixedWindows(10))
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10), allowed_lateness=10)
        return {"seen": look_up(main, AsList(side))}

    found = harvest(spark_session, build, f"--checkpoint_dir={tmp_path}")
    assert found["seen"] == [(2, [1]), (3, [1]), (12, [11]), (13, [11]), (22, [21])]
    newest = max(tmp_path.rglob("*.manifest"))
    assert decode(newest.read_bytes(), newest.name).views == {}


def test_elements_that_wait_make_nothing_due_until_the_side_input_may_be_ready(
    spark_session: Any, tmp_path: Path
) -> None:
    """Each event is one epoch. Only the end of the side input's window makes another one due."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1), tag="side").add_elements(numbers(2), tag="main")
        for second in (3, 6, 9, 12):
            events.advance_watermark_to(second, tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        side = found["side"] | "S" >> beam.WindowInto(FixedWindows(10))
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        return {"seen": look_up(main, AsList(side))}

    found = harvest(spark_session, build, f"--checkpoint_dir={tmp_path}")
    assert found["seen"] == [(2, [1])]
    newest = max(tmp_path.rglob("*.manifest"))
    last = decode(newest.read_bytes(), newest.name)
    assert (last.epoch, last.events) == (9, 8)

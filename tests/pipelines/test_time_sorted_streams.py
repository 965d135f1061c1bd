"""Input in the order of event time, in pipelines that run in epochs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.harvest import RARE_HARNESSES, harvest_on
from tests.spark.asking import Asking
from tests.spark.sending import Story, timed


def at(key: str, *times: int) -> list[TimestampedValue]:
    return timed(*times, key=key)


class Lists(beam.DoFn):  # type: ignore[misc]
    """Gives what came so far of a key and window; at its end, everything once more."""

    SO_FAR = BagStateSpec("so far", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[tuple[str, list[int]]]:
        so_far.add(pair[1])
        end.set(window.max_timestamp())
        yield pair[0], list(so_far.read())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, so_far: Any = beam.DoFn.StateParam(SO_FAR)
    ) -> Iterator[tuple[str, list[int]]]:
        yield f"all of {key}", list(so_far.read())


LISTS = beam.ParDo(Lists()).with_output_types(tuple[str, list[int]])


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_late_elements_are_dropped_by_their_own_time(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    """Their window is open, but what came after them may have been processed already."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", 6, 2)).advance_watermark_to(5)
        events.add_elements(at("a", 3, 5, 4, 12)).advance_watermark_to_infinity()
        lists = p | events | beam.WindowInto(FixedWindows(10)) | "list" >> LISTS
        grouped = lists | beam.GroupByKey()
        return {"lists": lists, "groups": grouped | beam.MapTuple(lambda k, v: (k, sorted(v)))}

    found = harvest_on(Asking(spark_session, in_order=["list"]), build, *flags)
    of_a = [[2], [2, 5], [2, 5, 6]], [[12]]
    assert found["lists"] == sorted(
        [("a", each) for window in of_a for each in window]
        + [("all of a", [2, 5, 6]), ("all of a", [12])]
    )
    # What is made of elements that have waited is not late.
    assert found["groups"] == [
        ("a", of_a[0]),
        ("a", of_a[1]),
        ("all of a", [[2, 5, 6]]),
        ("all of a", [[12]]),
    ]


def test_allowed_lateness_is_waited_for(spark_session: Any) -> None:
    """The step's time is behind the watermark by as much, for its timers too."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", 8, 4)).advance_watermark_to(11)
        events.add_elements(at("a", 7, 5, 12)).advance_watermark_to(13)
        events.add_elements(at("a", 6, 9, 7)).advance_watermark_to_infinity()
        into = beam.WindowInto(
            FixedWindows(10),
            allowed_lateness=6,
            trigger=AfterWatermark(late=AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        lists = p | events | into | "list" >> LISTS
        return {"lists": lists, "groups": lists | beam.GroupByKey()}

    found = harvest_on(Asking(spark_session, in_order=["list"]), build)
    # 4 was due at 10; 5, which comes then, at 11; 6 is not late at 13, by 7.
    first = [4, 5, 7, 7, 8, 9]
    assert found["lists"] == [
        *(("a", first[:count]) for count in range(1, 7)),
        ("a", [12]),
        ("all of a", first),
        ("all of a", [12]),
    ]
    # Not one pane of what is made of them is late.
    timings = {PaneInfoTiming.to_string(kept.pane.timing) for kept in found.kept["groups"]}
    assert timings == {"ON_TIME"}


class Looks(beam.DoFn):  # type: ignore[misc]
    """Gives what came so far, and a side input. Has no timers."""

    SO_FAR = BagStateSpec("so far", VarIntCoder())

    def process(
        self, pair: tuple[str, int], some: Any, so_far: Any = beam.DoFn.StateParam(SO_FAR)
    ) -> Iterator[tuple[str, list[int]]]:
        so_far.add(pair[1])
        yield pair[0], [*so_far.read(), *some]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_with_side_inputs(spark_session: Any, flags: tuple[str, ...]) -> None:
    """Elements that have waited for the side input are not late for their turn."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(at("a", 3, 1), tag="main").advance_watermark_to(2, tag="main")
        events.add_elements(at("a", 12, 4), tag="main").advance_watermark_to(40, tag="main")
        events.add_elements([TimestampedValue(-1, 2)], tag="side")
        events.advance_watermark_to(10, tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        into = FixedWindows(10)
        side = AsList(found["side"] | "S" >> beam.WindowInto(into))
        pair = beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        main = found["main"] | "M" >> beam.WindowInto(into) | pair
        return {"looked": main | "look" >> beam.ParDo(Looks(), side)}

    found = harvest_on(Asking(spark_session, in_order=["look"]), build, *flags)
    assert found["looked"] == [("a", each) for each in ([1, -1], [1, 3, -1], [1, 3, 4, -1], [12])]


class Gives(beam.DoFn):  # type: ignore[misc]
    """Gives its elements to the outside world; has neither state nor timers."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def process(self, pair: tuple[str, int]) -> Iterator[int]:
        with Path(self._folder, pair[0]).open("a") as file:
            print(pair[1], file=file)
        yield pair[1]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_without_state(spark_session: Any, tmp_path: Path, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", *range(200, 0, -2))).advance_watermark_to(150)
        events.add_elements(at("a", *range(299, 150, -2))).advance_watermark_to_infinity()
        return {"given": p | events | "give" >> beam.ParDo(Gives(tmp_path))}

    found = harvest_on(Asking(spark_session, in_order=["give"]), build, *flags)
    times = [*range(2, 151, 2), *sorted([*range(152, 201, 2), *range(151, 300, 2)])]
    assert found["given"] == times
    assert [int(line) for line in (tmp_path / "a").read_text().splitlines()] == times


def test_its_timers_are_not_interrupted(spark_session: Any) -> None:
    """An epoch without any time fires all of them."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([each for key in "abcdef" for each in at(key, 2, 1)])
        events.advance_watermark_to(10).add_elements(at("a", 11)).advance_watermark_to_infinity()
        return {"story": p | events | "tell" >> beam.ParDo(Story())}

    options = ("--unaligned_splittable_timers", "--batch_interval_millis=0")
    found = harvest_on(Asking(spark_session, in_order=["tell"]), build, *options)
    stories = [(key, each) for key in "abcdef" for each in ("1", "1 1.5 2")]
    assert found["story"] == sorted([*stories, ("a", "1 1.5 2 2.5 11")])


@pytest.mark.parametrize("also_stable", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_a_later_run_continues_with_what_waits(
    spark_session: Any, tmp_path: Path, also_stable: bool
) -> None:
    flag = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    stop = tmp_path / "stop"
    stop.touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", 7, 3, 1)).advance_watermark_to(3)
        events.add_elements(at("a", 5, 9)).advance_watermark_to_infinity()

        def check(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == 9 and stop.exists():
                raise RuntimeError("stopped")
            return pair

        pairs = p | events | beam.Map(check).with_output_types(tuple[str, int])
        return {"story": pairs | "tell" >> beam.ParDo(Story())}

    steps = ["tell"] if also_stable else []
    runner = Asking(spark_session, stable=steps, in_order=["tell"])
    with pytest.raises(RuntimeError, match="stopped"):
        harvest_on(runner, build, flag)
    stop.unlink()
    found = harvest_on(runner, build, flag)
    so_far = "1 1.5 3 3.5"
    assert found["story"] == [
        ("a", f"{so_far} 5"),
        ("a", f"{so_far} 5 5.5 7"),
        ("a", f"{so_far} 5 5.5 7 7.5 9"),
    ]


def test_each_window_gets_its_elements_in_order(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", 7, 12, 3)).advance_watermark_to(6)
        events.add_elements(at("a", 11, 6)).advance_watermark_to_infinity()
        windowed = p | events | beam.WindowInto(SlidingWindows(10, 5))
        return {"lists": windowed | "list" >> LISTS}

    found = harvest_on(Asking(spark_session, in_order=["list"]), build)
    ends = [each for key, each in found["lists"] if key == "all of a"]
    assert ends == [[3], [3, 6, 7], [6, 7, 11, 12], [11, 12]]

"""Stable input, in pipelines that run in epochs."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.pvalue import AsList
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from tests.harvest import RARE_HARNESSES, harvest_on
from tests.spark.asking import Asking
from tests.spark.restrictions import RESTRICTION
from tests.spark.sending import Sends, sent, timed

ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class Feed(beam.DoFn):  # type: ignore[misc]
    """Gives what a file says when it is run, line by line.

    A line is a value, its time, the watermark after it, and a file next to this one that has to be
    there first: "-" is the folder itself. The last line ends the input, and has only such a file.
    """

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        tracker: Any = RESTRICTION,
        estimator: Any = ESTIMATOR,
    ) -> Iterator[tuple[str, str]]:
        restriction = tracker.current_restriction()
        script = Path(element[0])
        lines = script.read_text().splitlines()
        if restriction.start:  # in a slow run the split may come in front of the call below
            estimator.set_watermark(Timestamp(int(lines[restriction.start - 1].split()[2])))
        *line, awaited = lines[restriction.start].split()
        if not (script.parent / awaited.replace("-", ".")).exists():
            tracker.defer_remainder(Duration(0.02))
            return
        if not line:
            tracker.try_claim(restriction.stop - 1)
            return
        if tracker.try_claim(restriction.start):
            value, time, watermark = line
            if value != "nothing":
                yield TimestampedValue(("k", value), int(time))
            estimator.set_watermark(Timestamp(int(watermark)))
            tracker.defer_remainder(Duration(0))


def fed(p: beam.Pipeline, folder: Path, *lines: str) -> Any:
    """Give what the lines say."""
    script = folder / "lines"
    script.write_text("\n".join(lines))
    feed = beam.ParDo(Feed()).with_output_types(tuple[str, str])
    return p | beam.Create([(str(script), 1000)]) | feed


class Tells(beam.DoFn):  # type: ignore[misc]
    """Tells the outside world at 18 seconds what came so far; fails after that, once."""

    SO_FAR = BagStateSpec("so far", StrUtf8Coder())
    AT_18 = TimerSpec("at 18", TimeDomain.WATERMARK)

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def process(
        self,
        pair: tuple[str, str],
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
        at_18: Any = beam.DoFn.TimerParam(AT_18),
    ) -> None:
        so_far.add(pair[1])
        Path(self._folder, f"has {pair[1]}".replace(" ", "_")).touch()
        if pair[1] == "a":
            at_18.set(Timestamp(18))

    @on_timer(AT_18)  # type: ignore[untyped-decorator]
    def tell(self, so_far: Any = beam.DoFn.StateParam(SO_FAR)) -> None:
        with Path(self._folder, "sent").open("a") as file:
            print(*so_far.read(), file=file)
        has_failed = Path(self._folder, "has_failed")
        if Path(self._folder, "fails").exists() and not has_failed.exists():
            has_failed.touch()
            raise RuntimeError("told")


@pytest.mark.parametrize(
    ("is_stable", "told"),
    [(True, {"a"}), pytest.param(False, {"a", "a b"}, marks=pytest.mark.rare)],
)
def test_a_timer_fires_on_what_is_committed(
    spark_session: Any, tmp_path: Path, is_stable: bool, told: set[str]
) -> None:
    """The source of a first attempt gives more, or less, than that of the second one."""
    flags = f"--checkpoint_dir={tmp_path / 'checkpoints'}", "--batch_interval_millis=50"
    lines: list[str] = []

    def build(p: beam.Pipeline) -> dict[str, Any]:
        def check(pair: tuple[str, str]) -> Any:
            if pair[1] == "b" and not (tmp_path / "fails").exists():
                raise RuntimeError("b")
            return pair

        pairs = fed(p, tmp_path, *lines)
        pairs | "tell" >> beam.ParDo(Tells(tmp_path))
        # Two exchanges, so that the step above has run before this one fails.
        later = pairs | "one" >> beam.Reshuffle() | "two" >> beam.Reshuffle()
        return {"checked": later | beam.Map(check)}

    runner = Asking(spark_session, stable=["tell"] if is_stable else [])
    lines[:] = ["a 10 15 -", "b 16 20 has_a", "has_failed"]
    with pytest.raises(RuntimeError, match="b"):
        harvest_on(runner, build, *flags)
    (tmp_path / "fails").touch()
    lines[:] = ["a 10 15 -", "nothing 0 20 has_a", "has_failed"]
    with pytest.raises(RuntimeError, match="told"):
        harvest_on(runner, build, *flags)
    lines[2:2] = ["b 21 22 has_failed"]
    harvest_on(runner, build, *flags)
    assert len(sent(tmp_path)) > 1
    assert {*sent(tmp_path)} == told


class Collects(beam.DoFn):  # type: ignore[misc]
    """Gives what came into a window at its end."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Any],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add(int(pair[1]))
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(kept.read())


def test_what_is_stored_holds_the_watermark(spark_session: Any, tmp_path: Path) -> None:
    """The watermark passes the end of the window in the epoch in which its element comes."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        into = beam.WindowInto(FixedWindows(10))
        pairs = fed(p, tmp_path, "5 5 25 -", "late 7 26 given", "27 27 28 -", "-")
        numbers = pairs | beam.Filter(lambda pair: pair[1] != "late") | into
        late = pairs | "late" >> beam.Filter(lambda pair: pair[1] == "late")
        late = late | beam.Map(lambda pair: (pair[0], "7")) | "into" >> into
        both = (numbers, late) | beam.Flatten()
        ends = beam.ParDo(Collects()).with_output_types(tuple[str, list[int]])
        # Both steps store their input, an epoch each.
        send = beam.ParDo(Sends(tmp_path, -1)).with_output_types(tuple[str, str])
        collected = both | "send" >> send | "collect" >> ends
        groups = collected | "Group" >> beam.GroupByKey()
        collected | beam.Map(lambda _: (tmp_path / "given").touch())
        return {"collected": collected, "groups": groups}

    runner = Asking(spark_session, stable=["send", "collect"])
    found = harvest_on(runner, build, "--batch_interval_millis=50")
    assert found["collected"] == [("k", [5]), ("k", [27])]
    assert [list(values) for _, values in found["groups"]] == [[[5]], [[27]]]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
@pytest.mark.rare
def test_keys_with_timers_of_both_kinds(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue((key, n), n) for key in "ab" for n in (1, 12, 4)])
        events.advance_processing_time(9).add_elements(timed(4)).advance_processing_time(9)
        events.advance_watermark_to(10).add_elements(timed(2, 15)).advance_processing_time(9)
        events.add_elements([TimestampedValue(("a", 13), 13)]).advance_watermark_to_infinity()
        pairs = p | events | beam.WindowInto(FixedWindows(10))
        ends = beam.ParDo(Collects()).with_output_types(tuple[str, list[int]])
        clock = beam.ParDo(Waits()).with_output_types(tuple[str, int])
        return {"collected": pairs | "collect" >> ends, "waited": pairs | "wait" >> clock}

    runner = Asking(spark_session, stable=["collect", "wait"])
    found = harvest_on(runner, build, *flags)
    ends = [("a", [1, 4]), ("a", [12, 13]), ("b", [1, 4]), ("b", [12]), ("k", [4]), ("k", [15])]
    assert found["collected"] == ends
    sums = [("a", 5), ("a", 12), ("a", 13), ("b", 5), ("b", 12), ("k", 4), ("k", 15)]
    assert found["waited"] == sums


class Waits(beam.DoFn):  # type: ignore[misc]
    """Gives the sum of a window when ten seconds have passed by the clock."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    LATER = TimerSpec("later", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[str, int],
        kept: Any = beam.DoFn.StateParam(KEPT),
        later: Any = beam.DoFn.TimerParam(LATER),
    ) -> None:
        kept.add(pair[1])
        later.set(Timestamp(10))

    @on_timer(LATER)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, int]]:
        yield key, sum(kept.read())
        kept.clear()


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_with_side_inputs(spark_session: Any, flags: tuple[str, ...]) -> None:
    """Elements wait for them first, then for the commit."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(timed(1, 12), tag="main").advance_watermark_to(40, tag="main")
        events.add_elements([TimestampedValue(7, 2)], tag="side")
        events.advance_watermark_to(10, tag="side")
        events.add_elements([TimestampedValue(8, 15)], tag="side")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        into = FixedWindows(10)
        least = AsList(found["side"] | "S" >> beam.WindowInto(into))
        pair = beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        main = found["main"] | "M" >> beam.WindowInto(into) | pair
        return {
            "looked": main | "look" >> beam.Map(lambda pair, some: (pair[1], sorted(some)), least),
            "kept": main | "keep" >> beam.ParDo(Keeps(), least),
        }

    runner = Asking(spark_session, stable=["look", "keep"])
    found = harvest_on(runner, build, *flags)
    assert found["looked"] == [(1, [7]), (12, [8])]
    assert found["kept"] == [([1], [7]), ([12], [8])]


class Keeps(beam.DoFn):  # type: ignore[misc]
    """Gives what it has kept, and its side input."""

    KEPT = BagStateSpec("kept", VarIntCoder())

    def process(
        self, pair: tuple[str, int], some: Any, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[Any]:
        kept.add(pair[1])
        yield sorted(kept.read()), sorted(some)


def test_groups_are_stable(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int]).add_elements(timed(1, 2, 11))
        events.advance_watermark_to(10).advance_watermark_to_infinity()
        groups = p | events | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()

        def send(group: tuple[str, Iterable[int]]) -> tuple[str, list[int]]:
            return group[0], sorted(group[1])

        return {"groups": groups | "send" >> beam.Map(send)}

    found = harvest_on(Asking(spark_session, stable=["send"]), build)
    assert found["groups"] == [("k", [1, 2]), ("k", [11])]


class Runs(beam.DoFn):  # type: ignore[misc]
    """Counts, from what its element says, one step per epoch or more."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(self, element: tuple[Any, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            yield element[0], position
            tracker.defer_remainder(Duration(0))


@pytest.mark.parametrize("is_stable", [False, True])
def test_restrictions(spark_session: Any, tmp_path: Path, is_stable: bool) -> None:
    flag = f"--checkpoint_dir={tmp_path / 'checkpoints'}"

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().add_elements([TimestampedValue(1, 1)]).advance_watermark_to_infinity()
        drawn = p | events | beam.Map(lambda _: (str(random.random()), 3))
        counted = drawn | "run" >> beam.ParDo(Runs())
        return {"sent": counted | "send" >> beam.ParDo(Sends(tmp_path, 1))}

    runner = Asking(spark_session, stable=["run"] if is_stable else [])
    with pytest.raises(RuntimeError, match="stopped"):
        harvest_on(runner, build, flag)
    found = harvest_on(runner, build, flag)
    assert [number for _, number in found["sent"]] == [0, 1, 2]
    assert len({line.split(",")[0] for line in sent(tmp_path)}) == (1 if is_stable else 2)


class Ends(beam.DoFn):  # type: ignore[misc]
    """Gives what came into a window, in its order, when the window is over."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        kept: Any = beam.DoFn.StateParam(KEPT),
        _: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add(pair[1])

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, list(kept.read())


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_the_end_of_windows(spark_session: Any, flags: tuple[str, ...]) -> None:
    """It comes after everything that waits, and its output is in time."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(timed(7, 3)).add_elements(timed(5, 12)).advance_watermark_to(10)
        events.add_elements(timed(4, 11)).advance_watermark_to_infinity()
        pairs = p | events | beam.WindowInto(FixedWindows(10))
        found = {}
        for name in ("stable", "sorted", "both"):
            ends = pairs | name >> beam.ParDo(Ends()).with_output_types(tuple[str, list[int]])
            grouped = ends | f"Group {name}" >> beam.GroupByKey()
            found[name] = grouped | f"Flat {name}" >> beam.FlatMapTuple(lambda key, values: values)
        return found

    steps = {"stable": ["stable", "both"], "in_order": ["sorted", "both"]}
    runner = Asking(spark_session, **steps, expiring=["stable", "sorted", "both"])
    found = harvest_on(runner, build, *flags)
    assert [sorted(each) for each in found["stable"]] == [[3, 5, 7], [11, 12]]
    assert found["sorted"] == [[3, 5, 7], [11, 12]]
    assert found["both"] == [[3, 5, 7], [11, 12]]

"""Timers: which fire, in which order, with what they see."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import RARE_HARNESSES, harvest, run
from tests.stateful import Fails, Loops


class Plays(beam.DoFn):  # type: ignore[misc]
    """Sets and clears what its elements say; its timers give out what has fired so far."""

    A = TimerSpec("a", TimeDomain.WATERMARK)
    B = TimerSpec("b", TimeDomain.WATERMARK)
    P = TimerSpec("p", TimeDomain.REAL_TIME)
    FIRED = BagStateSpec("fired", StrUtf8Coder())
    LOOPS = CombiningValueStateSpec("loops", sum)

    def process(
        self,
        element: tuple[str, str],
        a: Any = beam.DoFn.TimerParam(A),
        b: Any = beam.DoFn.TimerParam(B),
        p: Any = beam.DoFn.TimerParam(P),
    ) -> None:
        timers = {"a": a, "b": b, "p": p}
        for act in element[1].split():
            timer, _, rest = act.partition(":")
            time, _, tag = rest.partition("@")
            if time == "clear":
                timers[timer].clear(dynamic_timer_tag=tag)
            else:
                timers[timer].set(Timestamp(float(time)), dynamic_timer_tag=tag)

    def _fire(self, name: str, time: Timestamp, tag: str, fired: Any) -> Iterator[tuple[Any, ...]]:
        fired.add(f"{name}{tag}@{float(time):g}")
        yield tuple(fired.read())

    @on_timer(A)  # type: ignore[untyped-decorator]
    def on_a(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        fired: Any = beam.DoFn.StateParam(FIRED),
        loops: Any = beam.DoFn.StateParam(LOOPS),
        a: Any = beam.DoFn.TimerParam(A),
        b: Any = beam.DoFn.TimerParam(B),
        p: Any = beam.DoFn.TimerParam(P),
    ) -> Iterator[tuple[Any, ...]]:
        for seen in self._fire("a", time, tag, fired):
            yield key, seen
        match key:
            case "loops":
                loops.add(1)
                if loops.read() < 5:
                    a.set(time + 10)
            case "clears":
                b.clear()
            case "clears itself":
                a.set(time + 1)
                a.clear()
            case "sets earlier":
                b.set(time - 5)
            case "moves":
                b.set(time + 50)
            case "asks the clock":
                p.set(Timestamp.now() + 3600)
            case "tags" if tag == "first":
                a.set(time + 1, dynamic_timer_tag="third")
                a.clear(dynamic_timer_tag="second")

    @on_timer(B)  # type: ignore[untyped-decorator]
    def on_b(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        fired: Any = beam.DoFn.StateParam(FIRED),
    ) -> Iterator[tuple[Any, ...]]:
        for seen in self._fire("b", time, "", fired):
            yield key, seen

    @on_timer(P)  # type: ignore[untyped-decorator]
    def on_p(
        self,
        key: Any = beam.DoFn.KeyParam,
        fired: Any = beam.DoFn.StateParam(FIRED),
        b: Any = beam.DoFn.TimerParam(B),
    ) -> Iterator[tuple[Any, ...]]:
        fired.add("p")
        yield key, tuple(fired.read())
        if key == "then event time":
            b.set(Timestamp(70))


@pytest.mark.parametrize(
    ("key", "acts", "fired"),
    [
        ("in order", "b:7 a:3 p:1", "a@3 b@7 p"),
        ("once", "a:9 a:5", "a@5"),
        ("never", "a:9 b:3 a:clear b:clear", ""),
        ("again", "a:9 a:clear a:4", "a@4"),
        ("loops", "a:10 b:25", "a@10 a@20 b@25 a@30 a@40 a@50"),
        ("clears", "a:10 b:20", "a@10"),
        ("clears", "a:10 b:10", "a@10"),
        ("clears itself", "a:10", "a@10"),
        ("sets earlier", "a:10", "a@10 b@5"),
        ("moves", "a:10 b:20", "a@10 b@60"),
        ("asks the clock", "a:10", "a@10 p"),
        ("then event time", "p:99999999999 a:3", "a@3 p b@70"),
        ("tags", "a:10@first a:15@second a:5@zeroth a:5", "azeroth@5 a@5 afirst@10 athird@11"),
        ("in milliseconds", "a:1.2345678", "a@1.234"),
        ("ago", "a:-50", "a@-50"),
    ],
)
def test_what_fires(spark_session: Any, key: str, acts: str, fired: str) -> None:
    found = harvest(
        spark_session, lambda p: {"out": p | beam.Create([(key, acts)]) | beam.ParDo(Plays())}
    )
    steps = fired.split()
    expected = [(key, tuple(steps[: n + 1])) for n in range(len(steps))]
    assert sorted(found["out"], key=lambda each: len(each[1])) == expected


def test_timers_of_all_windows_fire_in_the_order_of_time(spark_session: Any, tmp_path: Any) -> None:
    """Outputs have no order; what the callbacks write to a file has."""
    log = tmp_path / "fired"

    class Log(beam.DoFn):  # type: ignore[misc]
        DUE = TimerSpec("due", TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[str, int],
            window: Any = beam.DoFn.WindowParam,
            due: Any = beam.DoFn.TimerParam(DUE),
        ) -> None:
            due.set(window.start + 10 - pair[1], dynamic_timer_tag=str(pair[1]))

        @on_timer(DUE)  # type: ignore[untyped-decorator]
        def fire(
            self,
            window: Any = beam.DoFn.WindowParam,
            time: Any = beam.DoFn.TimestampParam,
            tag: Any = beam.DoFn.DynamicTimerTagParam,
        ) -> None:
            with log.open("a") as file:
                print(int(window.start), float(time), tag, file=file)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("key", n) for n in (1, 4, 2)])
        stamped = pairs | beam.FlatMap(
            lambda pair: [TimestampedValue(pair, start + 1) for start in (20, 0, 10)]
        )
        return {"out": stamped | beam.WindowInto(FixedWindows(10)) | beam.ParDo(Log())}

    assert harvest(spark_session, build)["out"] == []
    assert log.read_text().splitlines() == [
        f"{start} {start + 10.0 - n} {n}" for start in (0, 10, 20) for n in (4, 2, 1)
    ]


def test_a_looping_timer_ends_with_its_window(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("key", 11)]) | beam.Map(lambda x: TimestampedValue(x, 12))
        return {"out": pairs | beam.WindowInto(FixedWindows(10)) | beam.ParDo(Loops())}

    assert harvest(spark_session, build)["out"] == [(11, 1), (15, 2), (19, 3), (20, 4)]


class Alarm(beam.DoFn):  # type: ignore[misc]
    """Needs nothing but a timer."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: tuple[int, int], due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(Timestamp(pair[1]))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def ring(
        self, key: Any = beam.DoFn.KeyParam, time: Any = beam.DoFn.TimestampParam
    ) -> Iterator[tuple[int, float]]:
        yield key, float(time)


def test_timers_of_many_keys(spark_session: Any) -> None:
    """The last element of a key sets its timer for good, whichever that is."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(n % 500, n % 500) for n in range(3000)])
        return {"out": pairs | beam.ParDo(Alarm())}

    assert harvest(spark_session, build)["out"] == [(n, float(n)) for n in range(500)]


def test_a_timer_that_fails_names_its_step(spark_session: Any) -> None:
    with pytest.raises(BundleFailedError, match="no such alarm") as caught:
        run(spark_session, lambda p: p | beam.Create([("a", 1)]) | "Wake up" >> beam.ParDo(Fails()))
    assert caught.value.step == "Wake up"
    assert "in fail" in caught.value.traceback_text


def run_changed(
    spark: Any, pipeline: beam.Pipeline, step: str, change: Callable[[Any], None]
) -> None:
    """Run with the ParDo's payload changed: as other SDKs write it."""
    proto = pipeline.to_runner_api()
    for each in proto.components.transforms.values():
        if each.unique_name == step and each.spec.urn == "beam:transform:pardo:v1":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            change(par_do)
            each.spec.payload = par_do.SerializeToString()
    runner = SparkPortableRunner(spark=spark)
    runner.run_portable_pipeline(proto, PipelineOptions([])).wait_until_finish()


class Append(beam.DoFn):  # type: ignore[misc]
    """Appends what it sees to a file of the key's."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)
    COUNT = CombiningValueStateSpec("count", sum)

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(
        self,
        pair: tuple[str, Any],
        time: Any = beam.DoFn.TimestampParam,
        count: Any = beam.DoFn.StateParam(COUNT),
    ) -> None:
        count.add(1)
        with Path(self._folder, pair[0]).open("a") as file:
            print(float(time), file=file)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def end(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        count: Any = beam.DoFn.StateParam(COUNT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        with Path(self._folder, key).open("a") as file:
            print(f"{float(window.end)} is over after {count.read()}", file=file)


class AppendOnly(beam.DoFn):  # type: ignore[misc]
    """Appends times to a file of the key's, and has no state."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, pair: tuple[str, Any], time: Any = beam.DoFn.TimestampParam) -> None:
        with Path(self._folder, pair[0]).open("a") as file:
            print(float(time), file=file)


def expires(par_do: Any) -> None:
    par_do.on_window_expiration_timer_family_spec = "ts-due"


def is_sorted(par_do: Any) -> None:
    par_do.requires_time_sorted_input = True


@pytest.mark.parametrize("is_grouped", [False, True], ids=["elements", "groups"])
def test_time_sorted_input(spark_session: Any, tmp_path: Any, is_grouped: bool) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    pairs = (
        pipeline
        | beam.Create([(key, n * 7919 % 101 - 50) for key in "ab" for n in range(100)])
        | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
    )
    if is_grouped:
        pairs = pairs | beam.WindowInto(FixedWindows(1)) | beam.GroupByKey()
    pairs | "asks" >> beam.ParDo(Append(str(tmp_path)))
    run_changed(spark_session, pipeline, "asks", is_sorted)
    times = sorted(n * 7919 % 101 - 50 + (0.999 if is_grouped else 0.0) for n in range(100))
    for key in "ab":
        found = [float(line) for line in (tmp_path / key).read_text().splitlines()]
        assert found == pytest.approx(times, abs=0.01)  # Beam rounds towards zero


def test_time_sorted_input_of_unlike_windows(spark_session: Any, tmp_path: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    numbers = pipeline | beam.Create(range(100))
    parts = [
        numbers
        | f"every {length} from {rest}"
        >> beam.FlatMap(
            lambda n, rest=rest: [TimestampedValue(("a", n), n * 7919 % 101)] * (n % 2 == rest)
        ).with_output_types(tuple[str, int])
        | f"windows of {length}" >> beam.WindowInto(FixedWindows(length))
        for rest, length in enumerate((10, 35))
    ]
    parts | beam.Flatten() | "asks" >> beam.ParDo(AppendOnly(str(tmp_path)))
    run_changed(spark_session, pipeline, "asks", is_sorted)
    found = [float(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert found == sorted(float(n * 7919 % 101) for n in range(100))


def test_on_window_expiration(spark_session: Any, tmp_path: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    (
        pipeline
        | beam.Create([(key, n) for key in "ab" for n in (3, 14, 12)])
        | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
        | beam.WindowInto(FixedWindows(10))
        | "asks" >> beam.ParDo(Append(str(tmp_path)))
    )
    run_changed(spark_session, pipeline, "asks", expires)
    for key in "ab":
        *times, first, second = (tmp_path / key).read_text().splitlines()
        assert sorted(map(float, times)) == [3, 12, 14]
        assert (first, second) == ("10.0 is over after 1", "20.0 is over after 2")


class Never(beam.DoFn):  # type: ignore[misc]
    """Sets a timer for a time that does not come: the greatest that Java's SDK can send."""

    AT = TimerSpec("at", TimeDomain.REAL_TIME)

    def process(self, pair: tuple[str, int], at: Any = beam.DoFn.TimerParam(AT)) -> None:
        at.set(Timestamp(micros=((1 << 63) - 1) * 1000))

    @on_timer(AT)  # type: ignore[untyped-decorator]
    def at_the_end(self, key: Any = beam.DoFn.KeyParam) -> Iterator[str]:
        yield key


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_timer_after_the_end_of_time_fires_at_the_end(
    spark_session: Any, is_streaming: bool, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pair = [TimestampedValue(("a", 1), 1)]
        events = Stream().add_elements(pair).advance_watermark_to_infinity()
        pairs = (p | events if is_streaming else p | beam.Create([("a", 1)])) | beam.Map(
            lambda pair: pair
        ).with_output_types(tuple[str, int])
        return {"fired": pairs | beam.ParDo(Never())}

    assert harvest(spark_session, build, *flags)["fired"] == ["a"]

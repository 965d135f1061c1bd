"""Timers of processing time that set themselves again at the end of all input."""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.async_dofn import AsyncWrapper
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.semantics import timer_loops
from tests.harvest import RARE_HARNESSES, harvest
from tests.stateful import Loops

EACH_S = 3600


MAX_NUMBER = 5


class Ticks(beam.DoFn):  # type: ignore[misc]
    """Gives a number each hour of processing time, for each key and window, up to five or six."""

    NUMBER = CombiningValueStateSpec("number", sum)
    TICK = TimerSpec("tick", TimeDomain.REAL_TIME)

    def process(self, pair: tuple[str, int], tick: Any = beam.DoFn.TimerParam(TICK)) -> None:
        tick.set(Timestamp(time.time() + EACH_S))

    @on_timer(TICK)  # type: ignore[untyped-decorator]
    def fire(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        number: Any = beam.DoFn.StateParam(NUMBER),
        tick: Any = beam.DoFn.TimerParam(TICK),
    ) -> Iterator[WindowedValue]:
        number.add(1)
        # The SDK would give it the time of the clock, as if that were event time.
        yield WindowedValue((key, number.read()), window.max_timestamp(), (window,))
        if number.read() < MAX_NUMBER:
            # The same one, and another one, which is due last: if it fired before, it would put the
            # first one off.
            if number.read() == 1:
                tick.set(Timestamp(time.time() + 3 * EACH_S), dynamic_timer_tag="once")
            tick.set(Timestamp(time.time() + EACH_S))


TICKS = beam.ParDo(Ticks()).with_output_types(tuple[str, int])


@pytest.mark.parametrize("flags", RARE_HARNESSES)
@pytest.mark.parametrize("kind", [(), ("--streaming",)], ids=["batch", "by the wall clock"])
def test_each_fires_until_it_does_not_set_itself_again(
    spark_session: Any, kind: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("a", 1), ("b", 2), ("b", 3)])
        first = pairs | "first" >> TICKS
        return {"first": first, "second": first | "second" >> TICKS}

    found = harvest(spark_session, build, *kind, *flags)
    numbers = range(1, MAX_NUMBER + 2)
    assert sorted(found["first"]) == [(key, number) for key in "ab" for number in numbers]
    assert sorted(found["second"]) == [(key, number) for key in "ab" for number in numbers]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_with_a_clock_that_stands(spark_session: Any, flags: tuple[str, ...]) -> None:
    """It fires each hour of the stream; when that ends, the rest fires at once."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue(("a", 1), 1), TimestampedValue(("a", 2), 12)])
        events.advance_processing_time(EACH_S + 60).advance_watermark_to(10)
        events.advance_processing_time(EACH_S + 60)
        events.advance_watermark_to_infinity()
        windowed = p | events | beam.WindowInto(FixedWindows(10))
        return {"ticks": windowed | TICKS}

    found = harvest(spark_session, build, *flags)
    ticks: dict[int, list[int]] = {}
    for kept in found.kept["ticks"]:
        ticks.setdefault(int(kept.window.start), []).append(kept.value[1])
    # The first window is over before the second hour is.
    assert {start: sorted(numbers) for start, numbers in ticks.items()} == {
        0: [1],
        10: [1, 2, 3, 4, 5, 6],
    }


class Impatient(Loops):
    """In its Python worker, loops are noticed at once."""

    def setup(self) -> None:
        self.before = timer_loops.MAX_SET_AGAIN, timer_loops.PATIENCE_US
        timer_loops.MAX_SET_AGAIN, timer_loops.PATIENCE_US = 20, 0

    def teardown(self) -> None:
        timer_loops.MAX_SET_AGAIN, timer_loops.PATIENCE_US = self.before


def test_a_timer_of_event_time_that_seems_to_have_no_end_is_named(spark_session: Any) -> None:
    options = PipelineOptions([])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session), options=options)
    pairs = pipeline | beam.Create([(1, 0.0)]) | beam.Map(lambda pair: TimestampedValue(pair, 0))
    _ = pairs | beam.WindowInto(FixedWindows(200)) | "Loop" >> beam.ParDo(Impatient())
    result = pipeline.run()
    result.wait_until_finish()
    texts = [each.message_text for each in result.messages()]
    (found,) = [text for text in texts if "still fires" in text]
    assert found.startswith("Loop: one key has set the timer ts-each more than ")


class Doubles(beam.DoFn):  # type: ignore[misc]
    """Work that takes longer than the input of its pipeline."""

    def process(self, pair: tuple[str, int]) -> Iterator[tuple[str, int]]:
        time.sleep(0.05)
        yield pair[0], 2 * pair[1]


@pytest.mark.parametrize("kind", [(), ("--streaming",)], ids=["batch", "streaming"])
def test_work_of_other_threads_is_waited_for(spark_session: Any, kind: tuple[str, ...]) -> None:
    """Beam's own wrapper keeps elements in state, and polls until their results are there."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([(str(number % 2), number) for number in range(6)])
        work = beam.ParDo(AsyncWrapper(Doubles(), callback_frequency=1))
        return {"doubled": pairs | work.with_output_types(tuple[str, int])}

    found = harvest(spark_session, build, *kind)
    assert sorted(found["doubled"]) == sorted((str(n % 2), 2 * n) for n in range(6))

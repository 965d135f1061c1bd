"""A streaming pipeline for every kind of Spark; a module of its own, which executors import."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from integration.pipelines import Counted

KEYS = 5


class Gathers(beam.DoFn):  # type: ignore[misc]
    """Gives out what it has seen of a key and window when the window ends."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        seen.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())


def _times(pair: tuple[str, int], factor: int) -> tuple[str, int]:
    return pair[0], pair[1] * factor


def windows_of_state(pipeline: beam.Pipeline) -> None:
    """Three epochs with elements, two windows, state, timers, a side input and a sum; checked."""
    events = TestStream().with_output_types(tuple[str, int])
    for second in (1, 2, 11):
        events.add_elements([TimestampedValue((f"key {n}", second), second) for n in range(KEYS)])
    events.advance_watermark_to_infinity()
    factor = pipeline | beam.Create([10])
    pairs = (
        pipeline
        | events
        | beam.ParDo(Counted("elements"))
        | beam.Map(_times, beam.pvalue.AsSingleton(factor))
        | beam.WindowInto(FixedWindows(10))
    )
    gathered = pairs | beam.ParDo(Gathers())
    sums = pairs | beam.CombinePerKey(sum)
    both = (gathered, sums) | beam.Flatten()
    expected: list[Any] = [
        each
        for n in range(KEYS)
        for each in [
            (f"key {n}", [10, 20]),
            (f"key {n}", [110]),
            (f"key {n}", 30),
            (f"key {n}", 110),
        ]
    ]
    assert_that(both, equal_to(expected))

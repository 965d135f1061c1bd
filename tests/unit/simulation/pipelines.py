"""Pipelines that are simulated: windows, triggers, lateness, sources and TestStreams."""

from collections.abc import Callable, Sequence
from random import Random

from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAny,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
    TriggerFn,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
)

from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    Event,
    TimedElement,
)
from tests.unit.simulation.elements import COUNTED, GROUPED, LOOKED, SECOND_US
from tests.unit.simulation.pipeline import TAG, Pipeline
from tests.unit.simulation.sources import KEYS, Sources

_WINDOW_FNS: Sequence[Callable[[], WindowFn]] = (
    lambda: FixedWindows(10),
    lambda: SlidingWindows(12, 6),
    lambda: Sessions(3),
    GlobalWindows,
)
_TRIGGERS: Sequence[Callable[[], TriggerFn]] = (
    DefaultTrigger,
    lambda: AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    lambda: AfterWatermark(early=AfterProcessingTime(3)),
    lambda: Repeatedly(AfterCount(3)),
    lambda: Repeatedly(AfterAny(AfterCount(4), AfterProcessingTime(2))),
    lambda: AfterCount(5),
)


def windowing(random: Random) -> Windowing:
    """Draw a windowing."""
    return Windowing(
        random.choice(_WINDOW_FNS)(),
        random.choice(_TRIGGERS)(),
        random.choice((AccumulationMode.ACCUMULATING, AccumulationMode.DISCARDING)),
        random.choice((TimestampCombiner.OUTPUT_AT_EOW, TimestampCombiner.OUTPUT_AT_EARLIEST)),
        allowed_lateness=random.choice((0, 0, 5)),
    )


def events(random: Random, count: int) -> list[Event]:
    """Draw what a TestStream does."""
    found: list[Event] = []
    watermark_us = value = 0
    for _ in range(count):
        match random.randrange(4):
            case 0:
                watermark_us += random.randrange(8) * SECOND_US
                found.append(AdvanceWatermark(TAG, watermark_us))
            case 1:
                found.append(AdvanceClock(random.randrange(1, 6) * SECOND_US))
            case _:
                some = []
                for _ in range(random.randrange(1, 6)):
                    value += 1
                    coded = f"{random.choice(KEYS)}:{value}".encode()
                    time_us = watermark_us + random.randrange(-6, 12) * SECOND_US
                    some.append(TimedElement(coded, max(0, time_us)))
                found.append(Elements(TAG, tuple(some)))
    return found


def pipeline(seed: int, length: int = 30, *, looks_up: bool = False) -> Pipeline:
    """Draw a pipeline.

    Args:
        seed: of what is drawn.
        length: about how many epochs it takes.
        looks_up: whether its declarative step has input.
    """
    dests = (GROUPED, COUNTED, LOOKED) if looks_up else (GROUPED, COUNTED)
    random = Random(seed)
    late_us = random.choice((0, 0, 4 * SECOND_US))
    return Pipeline(
        sources=Sources(random.randrange(1, 4), length, late_us, dests),
        grouping=windowing(random),
        totals=windowing(random),
        events=events(random, length) if random.random() < 0.3 else None,
        is_slow=random.random() < 0.4,
    )

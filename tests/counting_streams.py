"""A streaming pipeline with state, timers and a grouping, whose user code may harm a server."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, TimestampedValue

EPOCHS, KEYS = 6, 7


class Count(beam.DoFn):  # type: ignore[misc]
    """Counts the elements of a key, has as many long texts, and tells both at the end."""

    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())
    TEXTS = BagStateSpec("texts", StrUtf8Coder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        count: Any = beam.DoFn.StateParam(COUNT),
        texts: Any = beam.DoFn.StateParam(TEXTS),
        end: Any = beam.DoFn.TimerParam(END),
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[tuple[str, int, int]]:
        count.write((count.read() or 0) + 1)
        texts.add("x" * 400)
        end.set(timestamp + 3)
        yield pair[0], pair[1], count.read()

    @on_timer(END)  # type: ignore[untyped-decorator]
    def fire(
        self,
        key: Any = beam.DoFn.KeyParam,
        count: Any = beam.DoFn.StateParam(COUNT),
        texts: Any = beam.DoFn.StateParam(TEXTS),
    ) -> Iterator[tuple[str, int, int]]:
        yield key, count.read(), -len(list(texts.read()))


def pipeline(
    harm: Callable[[], object], at: int | None, epochs: int = EPOCHS
) -> Callable[[beam.Pipeline], dict[str, Any]]:
    """Build a pipeline in whose epoch ``at`` user code harms the server, once."""

    harmed: list[int] = []

    def maybe_harm(pair: tuple[str, int]) -> tuple[str, int]:
        if pair[1] == at and not harmed:
            harmed.append(1)
            harm()
        return pair

    return passing(maybe_harm, epochs)


def failing(at: int) -> Callable[[beam.Pipeline], dict[str, Any]]:
    """Build a pipeline whose user code fails in epoch ``at``, in each attempt at it."""

    def fail(pair: tuple[str, int]) -> tuple[str, int]:
        if pair[1] == at:
            raise ValueError("stop")
        return pair

    return passing(fail)


def passing(
    function: Callable[[tuple[str, int]], tuple[str, int]], epochs: int = EPOCHS
) -> Callable[[beam.Pipeline], dict[str, Any]]:
    """Build a pipeline in which a function passes elements on before they are stored."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        for epoch in range(epochs):
            pairs = [TimestampedValue((f"key {key}", epoch), epoch) for key in range(KEYS)]
            events = events.add_elements(pairs).advance_watermark_to(epoch)
        elements = p | events.advance_watermark_to_infinity()
        typed = elements | "harm" >> beam.Map(function).with_output_types(tuple[str, int])
        groups = typed | beam.WindowInto(FixedWindows(2)) | beam.GroupByKey()
        listed = groups | "list" >> beam.MapTuple(lambda key, values: (key, sorted(values)))
        return {"counts": typed | beam.ParDo(Count()), "groups": listed}

    return build

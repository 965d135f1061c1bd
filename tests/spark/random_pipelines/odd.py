"""Steps at the limits: times after the end of windows, timers that poll, very many steps."""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from tests.spark.random_pipelines.chain import Chain, without_pane

_KEYED = tuple[int, int]
_POLLS, _DEPTH = 4, 260
"""How often a timer polls; how many steps: more than Python has frames for, five for each."""


def _beyond(n: int, window: Any = beam.DoFn.WindowParam) -> Iterator[WindowedValue]:
    """Leave a number in its window, at its end or after it."""
    last = window.max_timestamp()
    after = last if isinstance(window, GlobalWindow) else window.end
    at = (window.start if after != last else last, last, after, after + 3, MAX_TIMESTAMP)
    yield WindowedValue(n, at[n % len(at)], (window,))


def _back(
    n: int, at: Any = beam.DoFn.TimestampParam, window: Any = beam.DoFn.WindowParam
) -> Iterator[WindowedValue]:
    """Bring it back, so that it may go into other windows."""
    yield WindowedValue(n, min(at, window.max_timestamp()), (window,))


class _Beyond(beam.PTransform):  # type: ignore[misc]
    """Steps over elements that may be after the end of their windows."""

    def __init__(self, *steps: Any) -> None:
        super().__init__()
        self._steps = steps

    def expand(self, numbers: Any) -> Any:
        return (
            numbers
            | "beyond" >> beam.ParDo(_beyond).with_output_types(int)
            | "steps" >> Chain(*self._steps)
            | "back" >> beam.ParDo(_back).with_output_types(int)
        )


def _summed() -> list[Any]:
    return [
        beam.Map(lambda n: (n % 3, n)).with_output_types(_KEYED),
        beam.GroupByKey(),
        beam.MapTuple(lambda key, numbers: key + 10 * sum(numbers)).with_output_types(int),
    ]


def grouped_beyond(_: int) -> _Beyond:
    """Group them."""
    return _Beyond(*_summed())


def looked_up_beyond(_: int, aside: Any) -> _Beyond:
    """Have them wait for a side input, then group them."""
    add = beam.Map(lambda n, side: (n + sum(side)) % 1_000_003, AsList(aside))
    return _Beyond(add.with_output_types(int), *_summed())


class _Polls(beam.DoFn):  # type: ignore[misc]
    """Asks some times, each an hour later, before it gives the sum of a key."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    ASKED = CombiningValueStateSpec("asked", sum)
    AGAIN = TimerSpec("again", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[int, int],
        kept: Any = beam.DoFn.StateParam(KEPT),
        again: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> None:
        kept.add(pair[1])
        again.set(Timestamp(time.time() + 3600))

    @on_timer(AGAIN)  # type: ignore[untyped-decorator]
    def ask(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        asked: Any = beam.DoFn.StateParam(ASKED),
        again: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> Iterator[WindowedValue]:
        asked.add(1)
        if asked.read() < _POLLS:
            again.set(Timestamp(time.time() + 3600))
            return
        # The SDK would give it the time of the clock, as if that were event time.
        total = key + 10 * sum(kept.read())
        yield WindowedValue(total, window.max_timestamp(), (window,))


def polled(_: int) -> Chain:
    """Sum by key, in state; the result comes after some polls."""
    keyed = beam.Map(lambda n: (n % 3, n)).with_output_types(_KEYED)
    return Chain(
        beam.WindowInto(GlobalWindows()), keyed, beam.ParDo(_Polls()).with_output_types(int)
    )


def not_polled(_: int) -> Chain:
    """The same without timers: Beam's own runner has none of processing time."""
    return Chain(
        beam.WindowInto(GlobalWindows()), *_summed(), without_pane().with_output_types(int)
    )


def _one_more(n: int) -> Iterator[int]:
    yield n + 1


def deep(_: int) -> Chain:
    """Add one in each of very many steps."""
    kinds = (
        lambda: beam.Map(lambda n: n + 1),
        lambda: beam.FlatMap(lambda n: [n + 1]),
        lambda: beam.ParDo(_one_more),
        lambda: beam.FlatMap(_one_more),
    )
    return Chain(*(kinds[n % len(kinds)]().with_output_types(int) for n in range(_DEPTH)))


def not_deep(_: int) -> Any:
    """The same in one step: Beam's own runner has no room for so many."""
    return beam.Map(lambda n: n + _DEPTH).with_output_types(int)

"""A streaming pipeline whose steps want stable input, and the order of event time.

A separate module, which executors import.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows

from integration.pipelines import Counted
from integration.streams import Counts

IN_ORDER, STABLE = "In order", "Send"
"""Names of the steps that want the order of event time, and stable input."""
KEYS = 3
_WINDOW_S = 8


class Lists(beam.DoFn):  # type: ignore[misc]
    """Gives what came of a key and window, in the order in which it came, at the window's end."""

    SO_FAR = BagStateSpec("so far", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        so_far.add(pair[1])
        end.set(window.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, so_far: Any = beam.DoFn.StateParam(SO_FAR)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, list(so_far.read())


class Send(beam.DoFn):  # type: ignore[misc]
    """Makes a file for each element, named by it: the same one again in another attempt."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, element: tuple[str, list[int], str]) -> Iterator[tuple[str, list[int], str]]:
        key, numbers, drawn = element
        Path(self._folder, f"{key}_{'-'.join(map(str, numbers))}_{drawn}").touch()
        yield element


def _drawn(pair: tuple[str, list[int]]) -> tuple[str, list[int], str]:
    return *pair, uuid.uuid4().hex


def orders_to_files(
    pipeline: beam.Pipeline, count: int, folder: str, strikes: tuple[Any, Any, Any]
) -> None:
    """Sources whose elements mix, a step that gets them in order, and one that gets stable input.

    Args:
        pipeline: to build.
        count: of each source's numbers, a multiple of eight.
        folder: for the files of the step with stable input.
        strikes: steps that pass elements on, or None: after the sources, after the step that gets
            them in order, after the one that gets stable input.
    """
    after_sources, after_order, after_sink = strikes
    counts = beam.ParDo(Counts()).with_output_types(tuple[str, int])
    # Two sources for each key, each of which comes to some numbers at a time.
    names = [(f"key-{n % KEYS}/{n}", count) for n in range(2 * KEYS)]
    pairs = pipeline | beam.Create(names) | counts | beam.Reshuffle()
    keys = beam.MapTuple(lambda name, n: (name.partition("/")[0], n))
    pairs = pairs | "Keys" >> keys.with_output_types(tuple[str, int])
    pairs = pairs | beam.WindowInto(FixedWindows(_WINDOW_S))
    if after_sources is not None:
        pairs = pairs | beam.ParDo(after_sources).with_output_types(tuple[str, int])
    pairs = pairs | beam.ParDo(Counted("elements")).with_output_types(tuple[str, int])
    lists = pairs | IN_ORDER >> beam.ParDo(Lists()).with_output_types(tuple[str, list[int]])
    if after_order is not None:
        lists = lists | "After order" >> beam.ParDo(after_order).with_output_types(
            tuple[str, list[int]]
        )
    drawn = lists | beam.Map(_drawn).with_output_types(tuple[str, list[int], str])
    sent = drawn | STABLE >> beam.ParDo(Send(folder))
    if after_sink is not None:
        sent | "After sink" >> beam.ParDo(after_sink)


def lists_in_order(count: int) -> list[tuple[str, str]]:
    """Return what the names of all files begin with: a key, and numbers with hyphens between."""
    windows = [range(start, start + _WINDOW_S) for start in range(0, count, _WINDOW_S)]
    return sorted(
        (f"key-{n}", "-".join(str(number) for number in window for _ in range(2)))
        for n in range(KEYS)
        for window in windows
    )

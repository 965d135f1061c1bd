"""Elements as bytes with their timestamp, windows and pane: for sorters, and across a grouping."""

import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

from apache_beam.coders import Coder, WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue

from beam_spark_runner.transforms.full_window.runs import Block
from beam_spark_runner.transforms.full_window.sorting import ExternalSorter

_bare = WindowedValue(None, MIN_TIMESTAMP, (GlobalWindow(),))


class ElementCodec:
    """Codes the elements of a collection.

    Elements of no particular time in the global window, as most sources give them, are coded as
    their value alone.

    Args:
        coder: of the values.
        window_coder: of their windows.
        is_global: whether the only window is the global one.
    """

    def __init__(self, coder: Coder, window_coder: Coder, *, is_global: bool) -> None:
        self._coder = coder
        self._windowed_coder = WindowedValueCoder(coder, window_coder)
        self._is_global = is_global

    def setup(self) -> None:
        """Make ready; coders are pickled without what codes."""
        self._value = self._coder.get_impl()
        self._windowed = self._windowed_coder.get_impl()

    def encode(self, value: Any, origin: WindowedValue) -> list[bytes]:
        """Code an element; once for each of its windows, as Beam counts it."""
        if len(origin.windows) == 1:
            return [self._windowed.encode(origin.with_value(value))]
        time, pane = origin.timestamp, origin.pane_info
        return [
            self._windowed.encode(WindowedValue(value, time, (window,), pane))
            for window in origin.windows
        ]

    def add(
        self,
        sorter: ExternalSorter,
        key: Callable[[Any], Any],
        values: list[Any],
        origins: list[WindowedValue],
    ) -> None:
        """Code elements and hand them to a sorter."""
        if self._is_global and all(map(_is_bare, distinct(origins))):
            sorter.add([*map(key, values)], Block([*map(self._value.encode, values)], []))
            return
        for value, origin in zip(values, origins, strict=True):
            coded = self.encode(value, origin)
            sorter.add([key(value)] * len(coded), Block(coded, [1] * len(coded)))

    def decode(self, block: Block) -> tuple[list[Any], list[WindowedValue]]:
        """Return values, and what has the timestamp, windows and pane of each."""
        coded, windowed = block
        if not windowed:
            return [*map(self._value.decode, coded)], [_bare] * len(coded)
        origins = [
            self._windowed.decode(each) if flag else _bare.with_value(self._value.decode(each))
            for each, flag in zip(coded, windowed, strict=True)
        ]
        return [each.value for each in origins], origins

    def sorter(
        self, key: Callable[[Any], Any], *, descends: bool, memory_bytes: int
    ) -> ExternalSorter:
        """Return an empty sorter for such elements."""
        return ExternalSorter(self.decode, key, descends=descends, memory_bytes=memory_bytes)


def distinct(origins: list[WindowedValue]) -> Iterable[WindowedValue]:
    """Return each of some windowed values once: those of a chunk are often one and the same."""
    first = origins[0]
    if all(map(operator.is_, origins, itertools.repeat(first))):
        return (first,)
    return {id(origin): origin for origin in origins}.values()


def _is_bare(origin: WindowedValue) -> bool:
    return (
        origin.timestamp_micros == _bare.timestamp_micros
        and origin.pane_info is PANE_INFO_UNKNOWN
        and len(origin.windows) == 1
    )

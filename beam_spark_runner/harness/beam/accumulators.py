"""Accumulators by window and key, in bounded memory, for combiners before the shuffle."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from apache_beam.transforms import core
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.current_element import CurrentElement
from beam_spark_runner.harness.failures import is_charged
from beam_spark_runner.harness.values.constants import ATOMS, is_constant, makes_new_lists
from beam_spark_runner.harness.values.encoded_keys import Places

MAX_BYTES = 160 << 20
_ENTRY_BYTES = 130  # a key, its place in a table, and the smallest accumulator
_TABLE_ENTRIES = 3  # the memory of an empty table, in entries
_BYTES_IN_MEMORY = 4  # per encoded byte: small objects are much larger than their encoding
_UNKNOWN_BYTES = 1_000
_MAX_UPDATES = 16_384  # between two estimates
_SAMPLES = 16
_MAX_VALUES = 128  # of a chunk that is emitted
_CHUNK_BYTES = 1 << 20
_GLOBAL = GlobalWindows.windowed_value(None)
_FOLDS: tuple[Callable[[list[Any]], Any], ...] = (sum, min, max, any, all)
_NONE_TYPE = type(None)  # of the keys of global combiners

Emit = Callable[[list[Any], list[WindowedValue]], None]
"""Takes KVs of key and accumulator, with the origin of each: its timestamp and window."""


class Accumulators:
    """Adds values to accumulators, and emits the oldest ones when all take too much memory.

    There is a table for each window, since hashing a window takes longer than most combiners
    take to add a value. The memory is estimated from the encoded sizes of a few accumulators,
    after 1, 2, 4, … values and later after every ``_MAX_UPDATES`` values.
    """

    def __init__(
        self,
        combine_fn: core.CombineFn,
        size_of: Callable[[Any], int],
        emit: Emit,
        places: Places,
        *,
        is_global: bool = False,
        combine_timestamps: Callable[[Any, Any], Any] | None = None,
        most_bytes: int = MAX_BYTES,
    ) -> None:
        """Begin without accumulators.

        Args:
            combine_fn: The CombineFn, after its ``setup``.
            size_of: Returns the encoded size of an accumulator in bytes. If it raises, the size
                is unknown.
            emit: Gets accumulators, once there are too many or on ``drain``.
            places: Of keys in tables.
            is_global: Whether all elements are in the global window; windows are then ignored.
            combine_timestamps: Combines the timestamps of two values; None: the timestamp of an
                accumulator is the end of its window.
            most_bytes: The approximate limit on memory.
        """
        self._create = combine_fn.create_accumulator
        self._add_input = combine_fn.add_input
        compact = combine_fn.compact
        does_nothing = getattr(compact, "__func__", None) is core.CombineFn.compact
        self._compact = None if does_nothing else compact
        self._makes_new_lists = makes_new_lists(combine_fn)
        self._lists = _lists_of(combine_fn)
        self._counts = type(combine_fn) is CountCombineFn
        self._size_of = size_of
        self._emit = emit
        self._places = places
        self._is_global = is_global
        self._combine_timestamps = combine_timestamps
        self._most_bytes = most_bytes
        self.current_element = CurrentElement()
        self._begin()

    def _begin(self) -> None:
        self._tables: dict[Any, dict[Any, Any]] = {None: Counter()} if self._is_global else {}
        self._entries = 0
        self._most_entries = self._most_bytes // _ENTRY_BYTES
        self._mean_bytes = 0.0
        self._updates = 0
        self._next_look = 1

    def add(self, values: list[Any], origins: Sequence[WindowedValue]) -> None:
        """Add each value of KVs to the accumulators of its key, one for each of its windows."""
        if self._is_global and self._lists is not None:
            self._append_global(values, *self._lists)
        elif self._is_global and self._counts:
            self._count_global(values)
        elif self._is_global:
            self._add_global(values)
        elif self._combine_timestamps is None:
            self._add_windowed(values, origins)
        else:
            self._add_timed(values, origins)
        self._updates += len(values)
        if self._updates >= self._next_look:
            self._look(values[-1][0], origins[-1].windows)
        elif self._entries > self._most_entries:
            self._keep(self._most_entries // 2)

    def drain(self) -> None:
        """Emit all accumulators, and begin again."""
        self._keep(0)
        self._begin()

    def _add_global(self, values: list[Any]) -> None:
        create, add_input = self._create, self._add_input
        kind, place = self._places.kind(values), self._places.place
        table = self._tables[None]
        get = table.get
        for key, value in self.current_element.iterate(values):
            if type(key) is not kind:
                key = place(key)
            accumulator = get(key)
            if accumulator is None and key not in table:
                table[key] = add_input(create(), value)
                continue
            result = add_input(accumulator, value)
            if result is not accumulator:
                table[key] = result
        self._entries = len(table)

    def _append_global(
        self, values: list[Any], function: Callable[[list[Any]], Any], most: int
    ) -> None:
        """Do what ``_add_global`` does, for accumulators that are lists of values.

        Source: ``NoSideInputsCallableWrapperCombineFn.add_input``, without calling it.
        """
        table = self._tables[None]
        kind, place = self._places.kind(values), self._places.place
        if kind is _NONE_TYPE and function in _FOLDS and len(values) > most:
            accumulator = _folded(function, table.get(None, []), values)
            if accumulator is not None:
                table[None] = accumulator
                self._entries = len(table)
                return
        get = table.get
        for key, value in self.current_element.iterate(values):
            if type(key) is not kind:
                key = place(key)
            accumulator = get(key)
            if accumulator is None:
                table[key] = [value]
                continue
            accumulator.append(value)
            if len(accumulator) > most:
                table[key] = [function(accumulator)]
        self._entries = len(table)

    def _count_global(self, values: list[Any]) -> None:
        """Do what ``_add_global`` does, for accumulators that are numbers of values."""
        kind, place = self._places.kind(values), self._places.place
        keys = [key for key, _ in self.current_element.iterate(values)]
        if {*map(type, keys)} != {kind}:
            keys = [key if type(key) is kind else place(key) for key in keys]
        table = cast("Counter[Any]", self._tables[None])
        table.update(keys)
        self._entries = len(table)

    def _add_windowed(self, values: list[Any], origins: Sequence[WindowedValue]) -> None:
        create, add_input = self._create, self._add_input
        kind, place = self._places.kind(values), self._places.place
        windows: Any = None
        tables: list[dict[Any, Any]] = []
        for (key, value), origin in zip(self.current_element.iterate(values), origins, strict=True):
            if origin.windows is not windows:
                windows = origin.windows
                tables = self._tables_of(windows)
            if type(key) is not kind:
                key = place(key)
            for table in tables:
                accumulator = table.get(key)
                if accumulator is None and key not in table:
                    table[key] = add_input(create(), value)
                    self._entries += 1
                    continue
                result = add_input(accumulator, value)
                if result is not accumulator:
                    table[key] = result
            if self._entries > self._most_entries:
                self._keep(self._most_entries // 2)
                windows = None  # their tables may have been emitted

    def _add_timed(self, values: list[Any], origins: Sequence[WindowedValue]) -> None:
        """Add values to entries that are lists of accumulator and timestamp."""
        create, add_input, combine = self._create, self._add_input, self._combine_timestamps
        kind, place = self._places.kind(values), self._places.place
        assert combine is not None
        for (key, value), origin in zip(self.current_element.iterate(values), origins, strict=True):
            timestamp = origin.timestamp
            if type(key) is not kind:
                key = place(key)
            for table in self._tables_of(origin.windows):
                entry = table.get(key)
                if entry is None:
                    table[key] = [add_input(create(), value), timestamp]
                    self._entries += 1
                    continue
                entry[0] = add_input(entry[0], value)
                entry[1] = combine(entry[1], timestamp)
            if self._entries > self._most_entries:
                self._keep(self._most_entries // 2)

    def _tables_of(self, windows: Any) -> list[dict[Any, Any]]:
        tables = []
        for window in windows:
            table = self._tables.get(window)
            if table is None:
                table = self._tables[window] = {}
                self._entries += _TABLE_ENTRIES
            tables.append(table)
        return tables

    def _look(self, key: Any, windows: Any) -> None:
        """Estimate the size of entries, and of the last one by itself: it may be of a hot key."""
        count = max(1, len(self._tables))
        some = itertools.islice(self._tables.values(), 0, None, -(-count // _SAMPLES))
        per_table = -(-_SAMPLES // count)
        sizes = [
            self._size(entry)
            for table in some
            for entry in itertools.islice(table.values(), per_table)
        ]
        self._mean_bytes = sum(sizes) / max(len(sizes), 1)
        in_memory = _ENTRY_BYTES + _BYTES_IN_MEMORY * self._mean_bytes
        self._most_entries = int(self._most_bytes / in_memory)
        window = windows[-1] if windows and not self._is_global else None
        last = self._tables.get(window, {}).get(self._places.place(key))
        if last is not None and _BYTES_IN_MEMORY * self._size(last) > self._most_bytes // 2:
            self.drain()
            return
        if self._entries > self._most_entries:
            self._keep(self._most_entries // 2)
            self._updates = 1  # the remaining accumulators may grow as fast
        self._next_look = self._updates + min(self._updates, _MAX_UPDATES)

    def _size(self, entry: Any) -> int:
        accumulator = entry if self._combine_timestamps is None else entry[0]
        try:
            return self._size_of(accumulator)
        except Exception:  # perhaps not compact yet; a real failure is raised again on encoding
            return _UNKNOWN_BYTES

    def _keep(self, most: int) -> None:
        """Emit the oldest entries: those of the oldest windows, and in them of the oldest keys."""
        self.current_element.end()  # an error here need not be caused by the latest value
        while self._entries > most:
            window, table = next(iter(self._tables.items()))
            excess = self._entries - most
            if len(table) <= excess and not self._is_global:
                del self._tables[window]
                self._entries -= len(table) + _TABLE_ENTRIES
                self._emit_entries(window, list(table.items()))
                continue
            oldest = list(itertools.islice(table.items(), excess))
            for key, _ in oldest:
                del table[key]
            self._entries -= len(oldest)
            self._emit_entries(window, oldest)

    def _emit_entries(self, window: Any, entries: list[tuple[Any, Any]]) -> None:
        step = max(1, min(_MAX_VALUES, int(_CHUNK_BYTES / (self._mean_bytes + 1))))
        compact, is_timed = self._compact, self._combine_timestamps is not None
        origin = _GLOBAL
        if not (self._is_global or is_timed):
            origin = WindowedValue(None, window.max_timestamp(), (window,))
        for start in range(0, len(entries), step):
            chunk = self._places.keyed(entries[start : start + step])
            origins = [origin] * len(chunk)
            if is_timed:
                origins = [WindowedValue(None, entry[1], (window,)) for _, entry in chunk]
                chunk = [(key, entry[0]) for key, entry in chunk]
            if compact is None:
                self._emit(chunk, origins)
                continue
            batch: list[tuple[Any, Any]] = []
            batch_origins: list[WindowedValue] = []
            for (key, accumulator), entry_origin in zip(chunk, origins, strict=True):
                compacted = compact(accumulator)
                if (
                    compacted is accumulator
                    or is_constant(compacted)
                    or (self._makes_new_lists and len(compacted) == 1 and is_constant(compacted[0]))
                ):
                    batch.append((key, compacted))
                    batch_origins.append(entry_origin)
                else:  # alone, because the next call of ``compact`` may change this result
                    self._emit([(key, compacted)], [entry_origin])
            if batch:
                self._emit(batch, batch_origins)


def _folded(
    function: Callable[[list[Any]], Any], accumulator: list[Any], values: list[Any]
) -> list[Any] | None:
    """Add all values of a global combiner's KVs by one call; None: they are not that simple.

    The functions of ``_FOLDS`` make the same of all values at once as of a few at a time, except
    that sums of floats may differ in their last digits: Python 3.12 and later compensate rounding
    errors within one call.
    """
    try:
        keys, parts = zip(*values, strict=True)
        if {*map(type, keys)} == {_NONE_TYPE} and ATOMS.issuperset(map(type, parts)):
            return [function([*accumulator, *parts])]
    except Exception as error:  # it is raised again when the element is added that is at fault
        if is_charged(error):  # unless another thread has interrupted the task
            raise
    return None


def _lists_of(combine_fn: core.CombineFn) -> tuple[Callable[[list[Any]], Any], int] | None:
    """Return what a CombineFn makes of lists: its function, and the values that wait for it.

    None: its accumulators are not lists of values, as they are in ``CombinePerKey(sum)``.
    """
    if type(combine_fn) is not core.NoSideInputsCallableWrapperCombineFn:
        return None
    return combine_fn._fn, combine_fn._buffer_size

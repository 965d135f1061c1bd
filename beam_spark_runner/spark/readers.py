"""From rows to elements: the cursor over a task's input, and a reader for each way of delivery."""

import abc
import itertools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
    create,
)

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.spill import (
    MEMORY_LIMIT_BYTES,
    ROW_OVERHEAD_BYTES,
    StreamedValues,
    ValueLog,
)
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.windowing import decode_windowing
from beam_spark_runner.semantics.grouping import grouping_for
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.keys import key_before, key_end, split_key
from beam_spark_runner.spark.program import Edge

_GLOBAL = (GlobalWindow(),)
_MIN_US = MIN_TIMESTAMP.micros
_CODERS = "apache_beam/coders/"
_ONLY_PANE = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
_GLOBAL_END_US = whole_milliseconds(GlobalWindow().max_timestamp().micros)
_BARE = create(None, _MIN_US, _GLOBAL, PANE_INFO_UNKNOWN)
_ONLY_GROUP = create(None, _GLOBAL_END_US, _GLOBAL, _ONLY_PANE)

_CHUNK_VALUES = 128
_CHUNK_BYTES = 1 << 20


class RowCursor:
    """A place in the task's input. Long values and long keys are whole again.

    ``forward`` gets the parts of batches that are not for this level's stages.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        hosted: Iterable[int],
        forward: Callable[[pa.RecordBatch], None],
    ) -> None:
        self._batches = batches
        self._hosted = np.array(sorted(hosted), np.int32)
        self._forward = forward
        self._joiner = rows.PieceJoiner()
        self._long_keys: dict[bytes, bytes] = {}
        self.block: rows.Block | None = None
        self.position = 0
        self._ends: list[int] = []  # where each run of rows with one destination ends
        self._run = 0

    def load(self) -> bool:
        """Make sure that a row stands at ``position``; False at the end of the input."""
        while self.block is None or self.position >= len(self.block):
            batch = next(self._batches, None)
            if batch is None:
                self._joiner.check_empty()
                self.block = None
                return False
            self._open(batch)
        return True

    def _open(self, batch: pa.RecordBatch) -> None:
        ids = batch.column(0).to_numpy() & rows.DEST_MASK
        mine = np.isin(ids, self._hosted)
        if not mine.all():
            self._forward(rows.conformed(batch.filter(pa.array(~mine))))
            batch = batch.filter(pa.array(mine))
        block = self._joiner.join_block(rows.block_of(batch))
        self._restore_long_keys(block)
        ids = block.dests & rows.DEST_MASK
        self._ends = [*(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(block)]
        self._run = 0
        self.block, self.position = block, 0

    def _restore_long_keys(self, block: rows.Block) -> None:
        for row in np.flatnonzero(block.dests & rows.LONG_KEY).tolist():
            digest, value = block.keys[row], block.values[row]
            assert digest is not None
            key = self._long_keys.get(digest)
            if key is None:
                # One object for all rows of the group, and of one group at a time.
                self._long_keys.clear()
                key = self._long_keys[digest] = key_before(value)
            block.keys[row], block.values[row] = key, value[key_end(value) :]

    @property
    def dest(self) -> int:
        """Destination of the row at ``position``, without flags."""
        assert self.block is not None
        return int(self.block.dests[self.position]) & rows.DEST_MASK

    def run_end(self) -> int:
        """Return where the run of rows with this row's destination ends in this block."""
        while self._ends[self._run] <= self.position:
            self._run += 1
        return self._ends[self._run]


class _Chunks:
    """Elements on their way to the bundle, some at a time; no more than a megabyte of rows."""

    def __init__(self, bundle: BundleInput) -> None:
        self._bundle = bundle
        self._values: list[Any] = []
        self._origins: list[WindowedValue] = []
        self._room = _CHUNK_BYTES

    def add(self, value: Any, origin: WindowedValue, size: int) -> None:
        """Take one element that was made of ``size`` bytes."""
        self._values.append(value)
        self._origins.append(origin)
        self._room -= size
        if self._room < 0 or len(self._values) >= _CHUNK_VALUES:
            self.push()

    def push(self) -> None:
        """Push what was taken."""
        if self._values:
            values, origins = self._values, self._origins
            self._values, self._origins, self._room = [], [], _CHUNK_BYTES
            self._bundle.push(values, origins)


class DecodingError(Exception):
    """The coder does not take the bytes that it gave."""


class Reader(abc.ABC):
    """Turns rows of one edge into elements, and pushes them into the bundle."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        self._edge = edge
        self._coder = coder
        self._bundle = bundle

    def read(self, cursor: RowCursor) -> None:
        """Take the run of rows at the cursor; a reader of groups goes on to the last one's end.

        Raises:
            BundleFailedError: a row cannot be decoded. What ``push`` raises passes.
        """
        try:
            self._read(cursor)
        except Exception as error:
            if not _comes_from_a_coder(error):
                raise
            # Beam's words.
            told = DecodingError(
                f"Error decoding input stream with coder {self._coder} in step "
                f"{self._edge.name}: {type(error).__name__}: {error}"
            )
            told.__cause__ = error
            raise failure_of(told, self._edge.name) from error

    @abc.abstractmethod
    def _read(self, cursor: RowCursor) -> None: ...


def _comes_from_a_coder(error: Exception) -> bool:
    """Whether a reader called a coder that raised; else it is what ``push`` runs."""
    called = (
        frame.f_code.co_filename
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename != __file__
    )
    return _CODERS in next(called, "")


class ElementReader(Reader):
    """Pushes each row as one element."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        super().__init__(edge, coder, bundle)
        self._decode_bare = coder.wrapped_value_coder.get_impl().decode
        self._decode_windowed = coder.get_impl().decode
        self._push = bundle.push

    def _read(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        cursor.position = end
        flags = (block.dests[start:end] & rows.WINDOWED) != 0
        cuts = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
        for first, last in itertools.pairwise([0, *cuts, end - start]):
            push = self._push_windowed if flags[first] else self._push_bare
            coded = block.values[start + first : start + last]
            step = _per_chunk(coded)
            for position in range(0, len(coded), step):
                push(coded[position : position + step])

    def _push_bare(self, coded: list[bytes]) -> None:
        self._push(list(map(self._decode_bare, coded)), [_BARE] * len(coded))

    def _push_windowed(self, coded: list[bytes]) -> None:
        elements = list(map(self._decode_windowed, coded))
        self._push([element.value for element in elements], elements)


class GroupReader(Reader):
    """Pushes each key and window with its values, from rows sorted by route.

    Rows of one route may hold several keys (a collision of hashes), in any
    order; they are grouped apart before the next route is read. A group that
    outgrows memory is pushed while its rows still arrive.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        super().__init__(edge, coder, bundle)
        element_coder = coder.wrapped_value_coder  # KV<K, Iterable<V>>
        self._decode_key = element_coder.key_coder().get_impl().decode
        self._decode_value = element_coder.value_coder().value_coder().get_impl().decode
        self._decode_window = coder.window_coder.get_impl().decode
        self._is_plain = (
            edge.is_global
            and edge.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
            and not edge.coded_windowing
        )
        self._chunks = _Chunks(bundle)
        self._kept: list[StreamedValues] = []
        self._windows: dict[bytes, Any] = {}

    def _read(self, cursor: RowCursor) -> None:
        self._read_groups(cursor)
        self._chunks.push()

    def _read_groups(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        routes = block.routes[start:end]
        cuts = (np.flatnonzero(routes[1:] != routes[:-1]) + (start + 1)).tolist()
        first = self._read_complete(block, start, cuts)
        keys, values, orders, emit = block.keys, block.values, block.orders, self._emit
        cursor.position = end
        if end < len(block):
            emit(keys[first:end], values[first:end], orders[first:end])
        else:
            rest = _Rows(keys[first:end], values[first:end], orders[first:end])
            self._finish_group(cursor, int(routes[-1]), rest)

    def _read_complete(self, block: rows.Block, first: int, cuts: list[int]) -> int:
        """Push the groups that end within the block, at ``cuts``; return where the next begins."""
        keys, values, orders = block.keys, block.values, block.orders
        if not self._is_plain:
            for last in cuts:
                self._emit(keys[first:last], values[first:last], orders[first:last])
                first = last
            return first
        # The same for the common case, with nothing in it that is not needed: small
        # groups are many, and a call of a method costs as much as decoding a key.
        decode_key, decode, push = (
            self._decode_key,
            self._decode_value,
            self._bundle.push,
        )
        elements: list[Any] = []
        rows_per_chunk = _per_chunk(values[first : cuts[-1]]) if cuts else 0
        room = rows_per_chunk
        for last in cuts:
            key = keys[first]
            if last - first == 1:
                group = [decode(values[first])]
            elif keys[first:last].count(key) == last - first:
                group = [decode(value) for value in values[first:last]]
            else:
                self._emit(keys[first:last], values[first:last], orders[first:last])
                first = last
                continue
            elements.append((decode_key(key), group))
            room -= last - first
            if room <= 0:
                push(elements, [_ONLY_GROUP] * len(elements))
                elements, room = [], rows_per_chunk
            first = last
        if elements:
            push(elements, [_ONLY_GROUP] * len(elements))
        return first

    def _finish_group(self, cursor: RowCursor, route: int, group: "_Rows") -> None:
        """The group at the end of a block may go on in the next."""
        size = group.size()
        while size <= MEMORY_LIMIT_BYTES:
            taken = self._take(cursor, route)
            if taken is None:
                self._emit(group.keys, group.values, group.orders)
                return
            size += taken.size()
            group = _Rows(
                group.keys + taken.keys,
                group.values + taken.values,
                np.concatenate([group.orders, taken.orders]),
            )
        self._stream(cursor, route, group)

    def _take(self, cursor: RowCursor, route: int) -> "_Rows | None":
        """Take further rows of a route; None: there are no more."""
        if not cursor.load() or cursor.dest != self._edge.dest:
            return None
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        if int(block.routes[start]) != route:
            return None
        # Routes are sorted within a destination, so equal ones are found by bisection.
        end = start + int(np.searchsorted(block.routes[start:end], route, side="right"))
        cursor.position = end
        return _Rows(block.keys[start:end], block.values[start:end], block.orders[start:end])

    def _emit(self, keys: list[bytes | None], values: list[bytes], orders: rows.Int64Array) -> None:
        key = keys[0]
        decode = self._decode_value
        if len(keys) == 1 or keys.count(key) == len(keys):
            self._push_group(
                key, [decode(value) for value in values], orders[0], sum(map(len, values))
            )
            return
        groups: dict[bytes | None, tuple[int, list[bytes]]] = {}
        for key, value, order in zip(keys, values, orders.tolist(), strict=True):
            groups.setdefault(key, (order, []))[1].append(value)
        for key, (order, some) in groups.items():
            self._push_group(key, [decode(value) for value in some], order, sum(map(len, some)))

    def _stream(self, cursor: RowCursor, route: int, group: "_Rows") -> None:
        """Push the first key's values while they are read, and set other keys' aside."""
        first = group.keys[0]
        others: dict[bytes | None, tuple[int, ValueLog]] = {}

        def values_of_first(taken: "_Rows | None") -> Iterator[bytes]:
            while taken is not None:
                if taken.keys.count(first) == len(taken.keys):
                    yield from taken.values
                else:
                    for key, value, order in zip(
                        taken.keys, taken.values, taken.orders.tolist(), strict=True
                    ):
                        if key == first:
                            yield value
                        else:
                            others.setdefault(key, (order, ValueLog()))[1].append(value)
                taken = self._take(cursor, route)

        self._push_streamed(first, values_of_first(group), group.orders[0])
        for key, (order, log) in others.items():
            self._push_streamed(key, iter(log), order)
            log.close()

    def _push_streamed(self, key: bytes | None, source: Iterator[bytes], order: int) -> None:
        values = StreamedValues(source, self._decode_value)
        ours = sys.getrefcount(values)
        self._push_group(key, values, order, 0)
        self._chunks.push()
        self._bundle.flush()
        # Any more references: a DoFn kept the iterable for later in the bundle.
        is_kept = sys.getrefcount(values) > ours
        values.drain(keep=is_kept)
        if is_kept:
            self._kept.append(values)
        else:
            values.close()

    def _push_group(self, key: bytes | None, values: Any, order: int, size: int) -> None:
        """Push one group; what arrives is decoded, but for the key. ``size`` is of the rows."""
        assert key is not None
        if self._edge.is_global:
            coded_key, windows, end_us = key, _GLOBAL, _GLOBAL_END_US
        else:
            coded_key, coded_window = split_key(key)
            windows, end_us = self._window(coded_window)
        match self._edge.timestamp_combiner:
            case TimestampCombiner.END_OF_WINDOW:
                timestamp_us = end_us
            case TimestampCombiner.EARLIEST:
                timestamp_us = whole_milliseconds(int(order))
            case TimestampCombiner.LATEST:
                timestamp_us = whole_milliseconds(-int(order))
        element = (self._decode_key(coded_key), values)
        self._chunks.add(element, create(element, timestamp_us, windows, _ONLY_PANE), size)

    def _window(self, coded: bytes) -> tuple[tuple[Any, ...], int]:
        found = self._windows.get(coded)
        if found is None:
            if len(self._windows) > 10_000:
                self._windows.clear()
            window = self._decode_window(coded)
            end_us = whole_milliseconds(window.max_timestamp().micros)
            found = self._windows[coded] = ((window,), end_us)
        return found

    def close(self) -> None:
        """End of the bundle: iterables that were kept are gone."""
        for values in self._kept:
            values.close()
        self._kept = []


class PaneReader(GroupReader):
    """Pushes the panes of each key, where windows merge or triggers fire.

    All values of a key are in memory at once, as Beam's trigger driver wants them.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        super().__init__(edge, coder, bundle)
        value_coder = coder.wrapped_value_coder.value_coder().value_coder()
        windowed = WindowedValueCoder(value_coder, coder.window_coder)
        self._decode_value = windowed.get_impl().decode
        self._grouping = grouping_for(decode_windowing(edge.coded_windowing))

    def _push_group(self, key: bytes | None, values: Any, order: int, size: int) -> None:
        assert key is not None
        for pane in self._grouping.panes(self._decode_key(key), values):
            self._chunks.add(pane.value, pane, size)
            size = 0


def reader_for(edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> Reader:
    """Choose the reader for an edge; ``coder`` is that of the elements which ``bundle`` takes."""
    if edge.delivery is not Delivery.GROUP_BY_KEY:
        return ElementReader(edge, coder, bundle)
    return (PaneReader if edge.coded_windowing else GroupReader)(edge, coder, bundle)


def _per_chunk(coded: list[bytes]) -> int:
    """How many of these values to take at once."""
    return max(1, min(_CHUNK_VALUES, _CHUNK_BYTES * len(coded) // (1 + sum(map(len, coded)))))


@dataclass(slots=True)
class _Rows:
    """Rows of one route."""

    keys: list[bytes | None]
    values: list[bytes]
    orders: rows.Int64Array

    def size(self) -> int:
        """Bytes in memory, nearly."""
        return sum(map(len, self.values)) + ROW_OVERHEAD_BYTES * len(self.values)

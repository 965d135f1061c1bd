"""From rows to groups: by key and window, or in panes."""

import collections
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue, create

from beam_spark_runner.core.mapping import map_all
from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.beam.window_assignment import MOST_WINDOWS
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.failures import charge
from beam_spark_runner.harness.values.merged_groups import merged_groups
from beam_spark_runner.harness.values.opaque import decoded
from beam_spark_runner.harness.values.spill import StreamedValues, ValueLog, ValueLogs
from beam_spark_runner.portable.windowing import decode_windowing
from beam_spark_runner.semantics.grouping import ONLY_PANE, WindowGrouping, grouping_for, pane_of
from beam_spark_runner.spark.program import Edge
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.cursor import RowCursor
from beam_spark_runner.spark.rows.key_runs import Run, RunReader
from beam_spark_runner.spark.rows.keys import split_key
from beam_spark_runner.spark.rows.reading import Chunks, per_chunk

_T = TypeVar("_T")

_GLOBAL = (GlobalWindow(),)
_GLOBAL_END_US = whole_milliseconds(GlobalWindow().max_timestamp().micros)
_ONLY_GROUP = create(None, _GLOBAL_END_US, _GLOBAL, ONLY_PANE)


class GroupReader(RunReader):
    """Pushes each key and window with its values, from rows sorted by route.

    Rows of one route may hold several keys (a collision of hashes), in any
    order; they are grouped apart before the next route is read. A group that
    outgrows memory is pushed while its rows still arrive; if somebody keeps its values,
    they are logged, until ``logs`` are closed.
    """

    def __init__(
        self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput, logs: ValueLogs
    ) -> None:
        super().__init__(edge, coder, bundle, logs)
        element_coder = coder.wrapped_value_coder  # KV<K, Iterable<V>>
        self._decode_key = element_coder.key_coder().get_impl().decode
        self._decode_value = element_coder.value_coder().value_coder().get_impl().decode
        self._decode_window = coder.window_coder.get_impl().decode
        self._is_plain = (
            not edge.is_keyed
            and edge.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
            and not edge.coded_windowing
        )
        self._chunks = Chunks(bundle)
        self._origin = functools.lru_cache(MOST_WINDOWS)(self._make_origin)

    def _read(self, cursor: RowCursor) -> None:
        super()._read(cursor)
        self._chunks.push()

    def _read_complete(self, block: schema.Block, first: int, cuts: list[int]) -> int:
        """Push the groups that end within the block, at ``cuts``; return where the next begins."""
        if not self._is_plain:
            return super()._read_complete(block, first, cuts)
        keys, values, orders = block.keys, block.values, block.orders
        # The same for the common case, with nothing in it that is not needed: small
        # groups are many, and a call of a method costs as much as decoding a key.
        decode_key, decode, push = (
            self._decode_key,
            self._decode_value,
            self._bundle.push,
        )
        is_global, origin_of = self._edge.is_global, self._origin
        elements: list[Any] = []
        origins: list[WindowedValue] = []
        rows_per_chunk = per_chunk(values[first : cuts[-1]]) if cuts else 0
        room = rows_per_chunk
        for last in cuts:
            key = keys[first]
            if last - first == 1:
                group: Sequence[Any] = [decode(values[first])]
            elif keys[first:last].count(key) == last - first:
                group = decoded(values[first:last], decode)
            else:
                self._emit(keys[first:last], values[first:last], orders[first:last])
                first = last
                continue
            if is_global:
                elements.append((decode_key(key), group))
                origins.append(_ONLY_GROUP)
            else:
                assert key is not None
                coded_key, coded_window = split_key(key)
                elements.append((decode_key(coded_key), group))
                origins.append(origin_of(coded_window))
            room -= last - first
            if room <= 0:
                push(elements, origins)
                elements, origins, room = [], [], rows_per_chunk
            first = last
        if elements:
            push(elements, origins)
        return first

    def _emit(
        self, keys: list[bytes | None], values: list[bytes], orders: schema.Int64Array
    ) -> None:
        key = keys[0]
        if len(keys) == 1 or keys.count(key) == len(keys):
            self._push_group(key, self._values(values), orders[0], sum(map(len, values)))
            return
        groups: dict[bytes | None, tuple[int, list[bytes]]] = {}
        for key, value, order in zip(keys, values, orders.tolist(), strict=True):
            groups.setdefault(key, (order, []))[1].append(value)
        for key, (order, some) in groups.items():
            self._push_group(key, self._values(some), order, sum(map(len, some)))

    def _values(self, coded: list[bytes]) -> Sequence[Any]:
        return decoded(coded, self._decode_value)

    def _stream(self, cursor: RowCursor, route: int, run: Run) -> None:
        """Push the first key's values while they are read, and set other keys' aside."""
        first = run.keys[0]
        others: dict[bytes | None, tuple[int, ValueLog]] = {}

        def values_of_first(taken: Run | None) -> Iterator[bytes]:
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
                            if key not in others:
                                others[key] = order, self._logs.new()
                            others[key][1].append(value)
                taken = self._take(cursor, route)

        self._push_large(first, run.orders[0], self._logs.new(), values_of_first(run))
        for key, (order, log) in others.items():
            self._push_large(key, order, log)

    def _push_large(
        self, key: bytes | None, order: int, log: ValueLog, source: Iterable[bytes] = ()
    ) -> None:
        """Push a group whose values are those of ``log``, and those that ``source`` still gives."""
        self._hand_out(
            log,
            source,
            self._decode_value,
            lambda values: self._push_group(key, values, order, 0),
        )

    def _hand_out(
        self,
        log: ValueLog,
        source: Iterable[bytes],
        decode: Callable[[bytes], Any],
        push: Callable[[StreamedValues], None],
    ) -> None:
        """Push the values while they come; log what is left of them if somebody keeps them.

        Whatever iterates over them refers to them: when they are gone, nobody can. So nothing
        here may refer to them when the bundle is done with the element that holds them.

        Args:
            log: has the first values; closed if nobody keeps them.
            source: gives the others.
            decode: gives one value.
            push: makes the element that holds them.
        """
        rest = iter(source)
        values = StreamedValues(log, decode, rest)
        reference = weakref.ref(values)
        push(values)
        del values
        self._chunks.push()
        self._bundle.flush()
        kept = reference()
        if kept is not None:
            kept.drain()
            return
        log.close()
        collections.deque(rest, maxlen=0)  # other keys of the route come to light

    def _push_group(self, key: bytes | None, values: Any, order: int, size: int) -> None:
        """Push one group; what arrives is decoded, but for the key. ``size`` is of the rows."""
        assert key is not None
        if self._edge.is_global:
            coded_key, origin = key, _ONLY_GROUP
        else:
            coded_key, coded_window = split_key(key)
            origin = self._origin(coded_window)
        match self._edge.timestamp_combiner:
            case TimestampCombiner.END_OF_WINDOW:
                timestamp_us = origin.timestamp_micros
            case TimestampCombiner.EARLIEST:
                timestamp_us = whole_milliseconds(int(order))
            case TimestampCombiner.LATEST:
                timestamp_us = whole_milliseconds(-int(order))
        element = (self._decode_key(coded_key), values)
        self._chunks.add(element, create(element, timestamp_us, origin.windows, ONLY_PANE), size)
        self._end_key()

    def _end_key(self) -> None:
        """Tell a stateful step that no more comes; a key's windows are apart, as its state is."""
        if self._edge.is_keyed:
            self._chunks.push()
            self._bundle.advance_key()

    def _make_origin(self, coded_window: bytes) -> WindowedValue:
        """Return what groups of a window have in common: they end with it."""
        window = self._decode_window(coded_window)
        end_us = whole_milliseconds(window.max_timestamp().micros)
        return create(None, end_us, (window,), ONLY_PANE)


class PaneReader(GroupReader):
    """Pushes the panes of each key, where windows merge or triggers fire.

    Where triggers fire, all values of a key are in memory at once, as Beam's driver wants them.
    """

    def __init__(
        self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput, logs: ValueLogs
    ) -> None:
        super().__init__(edge, coder, bundle, logs)
        value_coder = coder.wrapped_value_coder.value_coder().value_coder()
        windowed = WindowedValueCoder(value_coder, coder.window_coder)
        self._decode_value = windowed.get_impl().decode
        self._grouping = grouping_for(decode_windowing(edge.coded_windowing))

    def _values(self, coded: list[bytes]) -> Sequence[Any]:
        return map_all(self._decode_value, coded)

    def _push_group(self, key: bytes | None, values: Any, order: int, size: int) -> None:
        assert key is not None
        for pane in self._charged(self._grouping.panes(self._decode_key(key), values)):
            self._chunks.add(pane.value, pane, size)
            size = 0
        self._end_key()

    def _push_large(
        self, key: bytes | None, order: int, log: ValueLog, source: Iterable[bytes] = ()
    ) -> None:
        if not isinstance(self._grouping, WindowGrouping):
            super()._push_large(key, order, log, source)
            return
        assert key is not None
        decoded_key = self._decode_key(key)
        every = itertools.chain(log, source)
        groups = merged_groups(every, self._decode_value, self._grouping, self._logs)
        for values, window, time in self._charged(groups):
            push = functools.partial(self._add_pane, decoded_key, window, time)
            if isinstance(values, ValueLog):
                self._hand_out(values, (), self._decode_windowed, push)
            else:
                push(values)
                self._chunks.push()
        log.close()
        self._end_key()

    def _decode_windowed(self, coded: bytes) -> Any:
        return self._decode_value(coded).value

    def _add_pane(self, key: Any, window: Any, time: Timestamp, values: Any) -> None:
        element = (key, values)
        self._chunks.add(element, pane_of(element, window, time), 0)

    def _charged(self, groups: Iterator[_T]) -> Iterator[_T]:
        """Charge what a WindowFn or a trigger raises to the step that groups."""
        try:
            yield from groups
        except Exception as error:
            charge(error, self._edge.name)
            raise

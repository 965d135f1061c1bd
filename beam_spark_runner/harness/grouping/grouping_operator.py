"""GroupByKey: makes elements of a stage's input from the values of one key after another.

Values that exceed the memory limit are pushed while they still arrive; if user code keeps a
reference to them, they are logged until the task's logs are closed.
"""

import abc
import collections
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue, create
from typing_extensions import override

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.core.user_calls import map_all
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.beam.window_assignment import MAX_WINDOWS
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import Chunks, per_chunk
from beam_spark_runner.harness.failures import charge
from beam_spark_runner.harness.grouping.merged_groups import merged_groups
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows, Windowed, strategy_for
from beam_spark_runner.harness.values.opaque import decoded
from beam_spark_runner.harness.values.spilled_group import StreamedValues, ValueLog, ValueLogs
from beam_spark_runner.semantics.grouping import ONLY_PANE, WindowGrouping, grouping_for, pane_of

_T = TypeVar("_T")

_GLOBAL = (GlobalWindow(),)
_GLOBAL_END_US = whole_milliseconds(GlobalWindow().max_timestamp().micros)
_ONLY_GROUP = create(None, _GLOBAL_END_US, _GLOBAL, ONLY_PANE)


class GroupByKeySpec(Windowed, Protocol):
    """A GroupByKey in the plan."""

    @property
    def name(self) -> str:
        """The name of the step, for errors."""

    @property
    def is_global(self) -> bool:
        """Whether all values are in the global window, so that encoded keys have no window."""

    @property
    def is_keyed(self) -> bool:
        """Whether the stage has state or timers."""

    @property
    def timestamp_combiner(self) -> TimestampCombiner: ...

    @property
    @override
    def coded_windowing(self) -> bytes:
        """A serialised WindowingStrategy, if windows merge or triggers fire; else empty."""


class GroupByKey(abc.ABC):
    """Makes elements KV<key, values>, and pushes them to the stage's bundle.

    Args:
        grouping: The GroupByKey in the plan.
        coder: The coder of the elements.
        bundle: Takes the elements.
        logs: The value logs of the task.
    """

    def __init__(
        self,
        grouping: GroupByKeySpec,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
    ) -> None:
        self._is_keyed = grouping.is_keyed
        self._bundle = bundle
        self._logs = logs
        self._chunks = Chunks(bundle)
        element_coder = coder.wrapped_value_coder  # KV<K, Iterable<V>>
        self._decode_key = element_coder.key_coder().get_impl().decode

    @abc.abstractmethod
    def group(self, key: bytes, values: list[bytes], order: int) -> None:
        """Take all values of a key.

        Args:
            key: The encoded key, with the window if windows do not merge.
            values: The encoded values.
            order: The least ``order`` of the values' rows, from which the timestamp follows.
        """

    @abc.abstractmethod
    def stream(self, key: bytes, order: int, log: ValueLog, source: Iterable[bytes] = ()) -> None:
        """Take a key whose values are those of ``log``, followed by those of ``source``.

        ``source`` is read to its end.
        """

    def push(self) -> None:
        """Push the buffered elements."""
        self._chunks.push()

    def _hand_out(
        self,
        log: ValueLog,
        source: Iterable[bytes],
        decode: Callable[[bytes], Any],
        push: Callable[[StreamedValues], None],
    ) -> None:
        """Push the values while they arrive; log the rest if user code keeps a reference.

        A weak reference shows whether anything may still iterate over the values. So nothing
        in the runner may refer to them once the bundle has processed their element.

        Args:
            log: The log with the first values; closed if nothing refers to the values.
            source: The other values, encoded.
            decode: Decodes one value.
            push: Pushes the element with these values.
        """
        rest = iter(source)
        values = StreamedValues(log, decode, rest)
        reference = weakref.ref(values)
        push(values)
        del values
        self._chunks.push()
        self._bundle.flush()
        self._logs.check()
        kept_values = reference()
        if kept_values is not None:
            kept_values.drain()
            return
        log.close()
        collections.deque(rest, maxlen=0)  # reads on, since other keys of the route may follow

    def _end_key(self) -> None:
        """Advance the key in a keyed stage. Each window of the key is advanced separately."""
        if self._is_keyed:
            self._chunks.push()
            self._bundle.advance_key()


class GroupsByWindow(GroupByKey):
    """Pushes one element per key and window: windows do not merge, the default trigger fires once.

    Args:
        grouping: The GroupByKey in the plan.
        coder: The coder of the elements.
        bundle: Takes the elements.
        logs: The value logs of the task.
        split_key: Splits the bytes of a row's key into the encoded key and window.
    """

    def __init__(
        self,
        grouping: GroupByKeySpec,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
        split_key: Callable[[bytes], tuple[bytes, bytes]],
    ) -> None:
        super().__init__(grouping, coder, bundle, logs)
        self._is_global = grouping.is_global
        self._timestamp_combiner = grouping.timestamp_combiner
        self._split_key = split_key
        value_coder = coder.wrapped_value_coder.value_coder().value_coder()
        self._decode_value = value_coder.get_impl().decode
        self._decode_window = coder.window_coder.get_impl().decode
        self._origin = functools.lru_cache(MAX_WINDOWS)(self._make_origin)
        self.takes_runs = (
            not grouping.is_keyed and grouping.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
        )

    def group_runs(
        self,
        keys: list[bytes],
        values: list[bytes],
        first: int,
        cuts: list[int],
        take_apart: Callable[[int, int], None],
    ) -> int:
        """Take many small groups at once; only if ``takes_runs``.

        The result is that of ``group`` for each of them. It is written out, because a method
        call costs as much as decoding a key.

        Args:
            keys: The keys of the rows.
            values: The values of the rows.
            first: The row at which the first run begins.
            cuts: The rows at which the next runs begin. A run nearly always has one key.
            take_apart: Takes a run with several keys, by its first row and its end (exclusive).

        Returns:
            The last of the cuts; ``first`` if there are none.
        """
        decode_key, decode, push = self._decode_key, self._decode_value, self._bundle.push
        is_global, origin_of, split_key = self._is_global, self._origin, self._split_key
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
                take_apart(first, last)
                first = last
                continue
            if is_global:
                elements.append((decode_key(key), group))
                origins.append(_ONLY_GROUP)
            else:
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

    @override
    def group(self, key: bytes, values: list[bytes], order: int) -> None:
        self._add(key, decoded(values, self._decode_value), order, sum(map(len, values)))

    @override
    def stream(self, key: bytes, order: int, log: ValueLog, source: Iterable[bytes] = ()) -> None:
        self._hand_out(
            log, source, self._decode_value, lambda values: self._add(key, values, order, 0)
        )

    def _add(self, key: bytes, values: Any, order: int, size: int) -> None:
        if self._is_global:
            coded_key, origin = key, _ONLY_GROUP
        else:
            coded_key, coded_window = self._split_key(key)
            origin = self._origin(coded_window)
        match self._timestamp_combiner:
            case TimestampCombiner.END_OF_WINDOW:
                timestamp_us = origin.timestamp_micros
            case TimestampCombiner.EARLIEST:
                timestamp_us = whole_milliseconds(order)
            case TimestampCombiner.LATEST:
                timestamp_us = whole_milliseconds(-order)
        element = (self._decode_key(coded_key), values)
        self._chunks.add(element, create(element, timestamp_us, origin.windows, ONLY_PANE), size)
        self._end_key()

    def _make_origin(self, coded_window: bytes) -> WindowedValue:
        """Return the origin of groups in a window: their timestamp is the end of the window."""
        window = self._decode_window(coded_window)
        end_us = whole_milliseconds(window.max_timestamp().micros)
        return create(None, end_us, (window,), ONLY_PANE)


class GroupsInPanes(GroupByKey):
    """Pushes the panes of each key, if windows merge or triggers fire.

    If triggers fire, all values of a key are in memory at once, as Beam's driver requires.

    Args:
        grouping: The GroupByKey in the plan.
        coder: The coder of the elements.
        bundle: Takes the elements.
        logs: The value logs of the task.
        merge_windows: See ``strategy_for``.
    """

    def __init__(
        self,
        grouping: GroupByKeySpec,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
        merge_windows: MergeWindows | None = None,
    ) -> None:
        super().__init__(grouping, coder, bundle, logs)
        value_coder = coder.wrapped_value_coder.value_coder().value_coder()
        windowed = WindowedValueCoder(value_coder, coder.window_coder)
        self._name = grouping.name
        self._decode_windowed = windowed.get_impl().decode
        self._grouping = grouping_for(strategy_for(grouping, coder.window_coder, merge_windows))

    @override
    def group(self, key: bytes, values: list[bytes], order: int) -> None:
        self._add_panes(key, map_all(self._decode_windowed, values), sum(map(len, values)))

    @override
    def stream(self, key: bytes, order: int, log: ValueLog, source: Iterable[bytes] = ()) -> None:
        if not isinstance(self._grouping, WindowGrouping):
            self._hand_out(
                log, source, self._decode_windowed, lambda values: self._add_panes(key, values, 0)
            )
            return
        decoded_key = self._decode_key(key)
        every = itertools.chain(log, source)
        groups = merged_groups(every, self._decode_windowed, self._grouping, self._logs)
        for values, window, time in charged(groups, self._name):
            push = functools.partial(self._add_pane, decoded_key, window, time)
            if isinstance(values, ValueLog):
                self._hand_out(values, (), self._decode, push)
            else:
                push(values)
                self._chunks.push()
        log.close()
        self._end_key()

    def _decode(self, coded: bytes) -> Any:
        return self._decode_windowed(coded).value

    def _add_panes(self, key: bytes, values: Any, size: int) -> None:
        for pane in charged(self._grouping.panes(self._decode_key(key), values), self._name):
            self._chunks.add(pane.value, pane, size)
            size = 0
        self._end_key()

    def _add_pane(self, key: Any, window: Any, time: Timestamp, values: Any) -> None:
        element = (key, values)
        self._chunks.add(element, pane_of(element, window, time), 0)


def charged(groups: Iterator[_T], step: str) -> Iterator[_T]:
    """Assign exceptions of a WindowFn or a trigger to the step that groups."""
    try:
        yield from groups
    except Exception as error:
        charge(error, step)
        raise

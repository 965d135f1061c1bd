"""The state and timer objects of DoFns in the embedded harness, for one key at a time.

While elements of a key arrive, its state is kept as objects: nothing is encoded, and the backend
is not read if it cannot have any state of the key. If a key has much state, that is written to the
backend from time to time, and read from there later.
"""

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from apache_beam.coders.coder_impl import PaneInfoCoderImpl
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms import core, userstate
from typing_extensions import override

from beam_spark_runner.harness.beam.key_timer import KeyTimer
from beam_spark_runner.harness.beam.map_states import KeyMap, has_entries
from beam_spark_runner.harness.beam.window_assignment import MAX_WINDOWS
from beam_spark_runner.semantics.timers import (
    Timer,
    TimerId,
    TimerQueue,
    expiry_us,
)
from beam_spark_runner.state.backend import StoredTimer

_PANE_CODER = PaneInfoCoderImpl()


class KeyStates(bundle_processor.FnApiUserStateContext):  # type: ignore[misc]
    """State and timers of the current key. Threads: the bundle's."""

    def __init__(self, handler: Any, *coders_and_id: Any, allowed_lateness_us: int) -> None:
        super().__init__(handler, *coders_and_id)
        self.timers = TimerQueue()
        self.clock_us: int | None = None  # processing time of the bundle; None: the wall clock's
        self.piled_bytes = 0  # approximate size of values added to bags since the last write
        self._all_states: dict[tuple[userstate.StateSpec, Any], Any] = {}
        self._handler = handler
        self.allowed_lateness_us = allowed_lateness_us
        self._known_expiry_us = functools.lru_cache(MAX_WINDOWS)(self._compute_expiry_us)
        self._last_window: Any = None
        self._last_expiry_us = 0
        window_coder = self._window_coder.get_impl()
        self._encode_window = window_coder.encode
        self._decode_window = functools.lru_cache(MAX_WINDOWS)(window_coder.decode)
        self._encode_key = self._key_coder.get_impl().encode_nested
        self._combine_fns: dict[userstate.StateSpec, core.CombineFn] = {}
        self._is_written = False  # whether this bundle has written state of the key to the backend
        self._key: Any = None  # the key that was begun
        self._coded_key = b""
        self._has_begun = False
        self._stored_timers: Sequence[StoredTimer] = ()  # those of the key when it began

    @property
    def is_storing(self) -> bool:
        """Whether keys outlive the bundle."""
        stores: bool = self._handler.is_storing
        return stores

    def get_state(self, spec: userstate.StateSpec, key: Any, window: Any) -> Any:
        """Return the state object; the same one until the next ``write`` or ``forget``."""
        # One key at a time: it need not be hashed.
        state = self._all_states.get((spec, window))
        if state is None:
            state = self._all_states[spec, window] = self._create(spec, key, window)
        return state

    def _create(self, spec: userstate.StateSpec, key: Any, window: Any) -> Any:
        kind = _KINDS.get(type(spec))
        state: Any
        is_new = not (self._is_written or self._handler.is_storing)
        if kind is not None:
            state = kind(
                self,
                self._handler,
                lambda: self._bag_key(spec, key, window),
                spec.coder,
                is_new=is_new,
            )
        elif has_entries(spec):
            state = KeyMap(
                self._handler,
                self._transform_id,
                spec.name,
                lambda: (self._encode_window(window), self._coded(key)),
                is_new=is_new,
                count=self._count_bytes,
            )
        else:
            state = self._create_state(spec, key, window)
            self._count_added(state, spec)
        if kind is KeyCombined:
            state.use(self._combine_fns.get(spec) or self._set_up(spec))
        return state

    def _count_added(self, state: Any, spec: userstate.StateSpec) -> None:
        """Have a state of Beam's own class count what is added to it."""
        add, coder = state.add, spec.coder
        has_times = isinstance(spec, userstate.OrderedListStateSpec)

        def add_and_count(value: Any) -> None:
            add(value)
            self.piled_bytes += size_of(value[1] if has_times else value, coder)

        state.add = add_and_count

    def _bag_key(
        self, spec: userstate.StateSpec, key: Any, window: Any
    ) -> beam_fn_api_pb2.StateKey:
        return beam_fn_api_pb2.StateKey(
            bag_user_state=beam_fn_api_pb2.StateKey.BagUserState(
                transform_id=self._transform_id,
                user_state_id=spec.name,
                window=self._encode_window(window),
                key=self._coded(key),
            )
        )

    def encoded(self, key: Any) -> bytes:
        """Return a key in its nested encoding."""
        coded: bytes = self._encode_key(key)
        return coded

    def _coded(self, key: Any) -> bytes:
        return self._coded_key if self._has_begun else self._encode_key(key)

    def _count_bytes(self, size: int) -> None:
        self.piled_bytes += size

    def _set_up(self, spec: userstate.StateSpec) -> core.CombineFn:
        combine_fn = self._combine_fns[spec] = copy.deepcopy(spec.combine_fn)
        combine_fn.setup()
        return combine_fn

    def get_timer(
        self, spec: userstate.TimerSpec, key: Any, window: Any, timestamp: Any, pane: Any
    ) -> KeyTimer:
        """Return the object that sets and clears the timers of one family and window."""
        return KeyTimer(
            self.timers,
            spec,
            window,
            timestamp.micros,
            (key, pane),
            expires_us=self.expiry_us(window),
            clock_us=self.clock_us,
        )

    def expiry_us(self, window: Any) -> int:
        """Return when a window is over, see ``semantics.timers.expiry_us``."""
        if window is not self._last_window:  # a window's hash takes a while
            self._last_expiry_us = self._known_expiry_us(window)
            self._last_window = window
        return self._last_expiry_us

    def _compute_expiry_us(self, window: Any) -> int:
        return expiry_us(window.max_timestamp().micros, self.allowed_lateness_us)

    def write(self) -> None:
        """Write all state objects of the key to the backend."""
        if self._all_states:
            self.commit()
            self.was_written()

    def was_written(self) -> None:
        """Forget the state objects, which were written."""
        self._all_states = {}
        self._is_written = True
        self.piled_bytes = 0

    def writes(self) -> list[Callable[[], None]]:
        """Return what ``write`` consists of, for each state object; ``was_written`` follows."""
        return [state.commit for state in self._all_states.values()]

    def of_another_key(self) -> "KeyStates":
        """Return an object for a key that is processed at the same time."""
        other = copy.copy(self)
        other.timers, other._all_states = TimerQueue(self.timers.dropped), {}
        other.forget()
        return other

    @property
    def has_begun(self) -> bool:
        """Whether a key has begun, and was not forgotten."""
        return self._has_begun

    def begin(self, key: Any) -> None:
        """Begin a key that is stored: load its timers. Does nothing if the key has begun."""
        if self._has_begun:
            return
        coded_key = self._encode_key(key)
        records = self._handler.timers(self._transform_id, coded_key)
        self._has_begun, self._key, self._coded_key = True, key, coded_key
        self._stored_timers = records
        for record in records:
            timer = self._timer_of(record, key)
            self.timers.set(timer, expires_us=self.expiry_us(timer.id.window))

    def timer_of(self, record: StoredTimer, key: bytes) -> Timer:
        """Return a timer as it is while its key is processed.

        Args:
            record: The timer as it is stored.
            key: Its key, encoded and nested.
        """
        return self._timer_of(record, self._key_coder.decode_nested(key))

    def _timer_of(self, record: StoredTimer, key: Any) -> Timer:
        return Timer(
            TimerId(record.family, record.tag, self._decode_window(record.window)),
            record.domain,
            record.fires_us,
            record.hold_us,
            (key, _PANE_CODER.decode(record.pane)),
        )

    def begin_encoded(self, key: bytes) -> None:
        """Begin a key that gets no elements, see ``begin``.

        Args:
            key: The key, encoded, nested.
        """
        self.begin(self._key_coder.decode_nested(key))

    def drop_window(self, window: Any) -> None:
        """Drop all state of the key in a window."""
        for spec, its_window in [entry for entry in self._all_states if entry[1] == window]:
            del self._all_states[spec, its_window]
        self._handler.drop_window(self._transform_id, self._encode_window(window), self._coded_key)

    def end(self) -> None:
        """Drop all state and timers of the key, or store them for a later bundle."""
        if self._has_begun:
            self.write()
            self.store_timers()
        self.forget()

    def store_timers(self) -> None:
        """Store the timers that are set."""
        timers = [self.stored_timer(timer) for timer in self.timers.remaining()]
        if timers != [*self._stored_timers]:
            self._handler.set_timers(self._transform_id, self._coded_key, timers)

    def stored_timer(self, timer: Timer) -> StoredTimer:
        """Return a timer as it is stored."""
        _, pane = timer.payload
        return StoredTimer(
            timer.id.family,
            timer.id.tag,
            self._encode_window(timer.id.window),
            timer.domain,
            timer.fires_us,
            timer.hold_us,
            _PANE_CODER.encode(pane),
        )

    def forget(self) -> None:
        """Forget the key with its state and timers."""
        self._has_begun = False
        self._key = None
        self._all_states = {}
        self._is_written = False
        self.piled_bytes = 0
        self.timers.restart()
        self._handler.forget_keys()

    def reset(self) -> None:
        """Forget the key, and tear CombineFns down; Beam calls this between bundles."""
        self.forget()
        while self._combine_fns:
            _, combine_fn = self._combine_fns.popitem()
            combine_fn.teardown()


class KeyBag(bundle_processor.SynchronousBagRuntimeState):  # type: ignore[misc]
    """Beam's bag state, with a lazy StateKey, and without reads if it is new.

    Args:
        states: The states of the key.
        handler: Answers state requests.
        make_key: Makes the StateKey of the bag.
        coder: The coder of the values.
        is_new: Whether the backend has no values of the bag.
    """

    def __init__(
        self,
        states: KeyStates,
        handler: Any,
        make_key: Callable[[], beam_fn_api_pb2.StateKey],
        coder: Any,
        *,
        is_new: bool,
    ) -> None:
        # Attributes of Beam's base class, which reads the backend unless the bag was cleared.
        self._states = states
        self._state_handler = handler
        self._make_key = make_key
        self._address: beam_fn_api_pb2.StateKey | None = None
        self._value_coder = coder
        self._cleared = is_new
        self._added_elements: list[Any] = []

    @override
    def add(self, value: Any) -> None:
        self._added_elements.append(value)
        self._states.piled_bytes += size_of(value, self._value_coder)

    @property
    def _state_key(self) -> beam_fn_api_pb2.StateKey:
        if self._address is None:
            self._address = self._make_key()
        return self._address


class KeyValue(KeyBag):
    """A bag of at most one value."""

    @override
    def read(self) -> Any:
        if self._added_elements:
            return self._added_elements[0]
        return None if self._cleared else next(iter(super().read()), None)

    @override
    def write(self, value: Any) -> None:
        self._cleared = True
        self._added_elements = [value]


class KeyCombined(KeyBag):
    """A bag of at most one accumulator, with a CombineFn that all keys share."""

    _is_extracted = False

    def use(self, combine_fn: core.CombineFn) -> None:
        """Set the CombineFn, after its ``setup``; called before any other method."""
        self._combine_fn = combine_fn
        self._add_input = combine_fn.add_input

    @override
    def read(self) -> Any:
        self._is_extracted = True
        return self._combine_fn.extract_output(self._accumulator())

    @override
    def add(self, value: Any) -> None:
        elements = self._added_elements
        if self._is_extracted or not elements:
            elements = self._renewed()
        elements[0] = self._add_input(elements[0], value)

    def _renewed(self) -> list[Any]:
        accumulator = self._accumulator()
        if self._is_extracted:
            # Some CombineFns sort the accumulator when they extract the output; merging undoes it.
            new = self._combine_fn.create_accumulator()
            accumulator = self._combine_fn.merge_accumulators([new, accumulator])
            self._is_extracted = False
            self._added_elements[0] = accumulator
        return self._added_elements

    def clear(self) -> None:
        super().clear()
        self._is_extracted = False

    def _accumulator(self) -> Any:
        if not self._added_elements:
            elements: Iterable[Any] = () if self._cleared else super().read()
            self._added_elements = list(elements) or [self._combine_fn.create_accumulator()]
            self._cleared = True
        return self._added_elements[0]


def size_of(value: Any, coder: Any) -> int:
    """Return about how many bytes a value takes: its own, and those of its encoding."""
    size = sys.getsizeof(value)
    if type(value) in _WITHOUT_PARTS:
        return size
    try:
        return size + int(coder.get_impl().estimate_size(value))
    except Exception:  # it is raised again, and charged to the step, when the value is written
        return size


_WITHOUT_PARTS = frozenset({str, bytes, int, float, bool, type(None)})
_KINDS: dict[type[userstate.StateSpec], type[KeyBag]] = {
    userstate.BagStateSpec: KeyBag,
    userstate.ReadModifyWriteStateSpec: KeyValue,
    userstate.CombiningValueStateSpec: KeyCombined,
}

"""The state and timer objects of DoFns in the embedded harness, for one key at a time.

While elements of a key arrive, its state is kept as objects: nothing is encoded, and the backend
is not read if it cannot have any state of the key. If a key has much state, that is written to the
backend from time to time, and read from there later.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.coders.coder_impl import PaneInfoCoderImpl
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms import core, userstate

from beam_spark_runner.harness.beam.key_bags import KINDS, KeyCombined, size_of
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
_MAX_KEPT = 8
"""State objects that are renewed for the next key. More of them are of several windows."""


class KeyStates(bundle_processor.FnApiUserStateContext):  # type: ignore[misc]
    """State and timers of the current key. Threads: the bundle's."""

    def __init__(self, handler: Any, *coders_and_id: Any, allowed_lateness_us: int) -> None:
        super().__init__(handler, *coders_and_id)
        self.timers = TimerQueue()
        self.clock_us: int | None = None  # processing time of the bundle; None: the wall clock's
        self.piled_bytes = 0  # approximate size of values added to bags since the last write
        self._all_states: dict[tuple[userstate.StateSpec, Any], Any] = {}
        # State objects of the previous key, which are empty; most keys need the same ones.
        self._kept: dict[tuple[userstate.StateSpec, Any], Any] = {}
        self._may_keep = True  # whether all state objects of the key can be renewed
        self.keepings = 0  # a counter; while it is unchanged, state objects are the same ones
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
        self._key_of_states: Any = None  # the key of the state objects
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
        self._key_of_states = key
        state = self._all_states.get((spec, window))
        if state is None and self._kept:
            kept = self._kept
            if (spec, window) in kept:
                self._all_states, self._kept = kept, {}
                return kept[spec, window]
            self._drop_states()
        if state is None:
            state = self._all_states[spec, window] = self._create(spec, key, window)
        return state

    def use_kept(self, key: Any, keepings: int) -> bool:
        """Use the state objects of the previous key for a key that begins.

        Args:
            key: The key.
            keepings: The value of the counter when these objects were gotten.

        Returns:
            Whether they are those that ``get_state`` would return.
        """
        if keepings != self.keepings or self._all_states:
            return False
        self._all_states, self._kept = self._kept, {}
        self._key_of_states = key
        return True

    def _drop_states(self) -> None:
        self._all_states, self._kept = {}, {}
        self._may_keep = True
        self.keepings += 1

    def _create(self, spec: userstate.StateSpec, key: Any, window: Any) -> Any:
        kind = KINDS.get(type(spec))
        state: Any
        is_new = not (self._is_written or self._handler.is_storing)
        if kind is not None:
            state = kind(
                self,
                self._handler,
                lambda: self._bag_key(spec, self._key_of_states, window),
                spec.coder,
                is_new=is_new,
            )
        elif has_entries(spec):
            self._may_keep = False
            state = KeyMap(
                self._handler,
                self._transform_id,
                spec.name,
                lambda: (self._encode_window(window), self._coded(key)),
                is_new=is_new,
                count=self._count_bytes,
            )
        else:
            self._may_keep = False
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
        self._drop_states()
        self._is_written = True
        self.piled_bytes = 0

    def writes(self) -> list[Callable[[], None]]:
        """Return what ``write`` consists of, for each state object; ``was_written`` follows."""
        return [state.commit for state in self._all_states.values()]

    def of_another_key(self) -> "KeyStates":
        """Return an object for a key that is processed at the same time."""
        other = copy.copy(self)
        other.timers = TimerQueue(self.timers.dropped)
        other._drop_states()
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
        self._key = self._key_of_states = None
        states = self._all_states
        if self._is_written or not self._may_keep or self.is_storing or len(states) > _MAX_KEPT:
            self._drop_states()
        elif states:
            for state in states.values():
                state.renew()
            self._all_states, self._kept = {}, states
        self._is_written = False
        self.piled_bytes = 0
        self.timers.restart()
        self._handler.forget_keys()

    def reset(self) -> None:
        """Forget the key, and tear CombineFns down; Beam calls this between bundles."""
        self.forget()
        self._drop_states()
        while self._combine_fns:
            _, combine_fn = self._combine_fns.popitem()
            combine_fn.teardown()

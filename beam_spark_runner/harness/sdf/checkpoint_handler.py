"""Schedules residuals of splittable DoFns: stores each one, with a timer.

Only the internals differ between batch, where both are in a task's memory, and
streaming, where both are in the shard.

Source: Beam design "self-checkpoint for portable runners"; Java ``BundleCheckpointHandlers``.
"""

import itertools
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from apache_beam.coders import Coder, WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from beam_spark_runner.core.errors import FnApiProtocolError, InvalidPipelineError
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.bundle import BundleResult, Residual
from beam_spark_runner.state.residuals import KeyedTimers, KeyedValues


class Checkpoint(Protocol):
    """A ProcessBundleResponse, ProcessBundleSplitResponse, BundleResult or TimedSplit."""

    @property
    def residual_roots(self) -> Iterable[beam_fn_api_pb2.DelayedBundleApplication]: ...


class TimerInternals(Protocol):
    """The processing-time timers of one key."""

    def processing_time_us(self) -> int: ...

    def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None: ...


class StateInternals(Protocol):
    """The value states of one key."""

    def write(self, window: bytes, id_: str, value: WindowedValue) -> None: ...

    def read(self, window: bytes, id_: str) -> WindowedValue: ...

    def clear(self, window: bytes, id_: str) -> None: ...


class TimerInternalsFactory(Protocol):
    """Gives the timers of the key that an element belongs to."""

    def timer_internals_for(self, element: WindowedValue) -> TimerInternals: ...


class StateInternalsFactory(Protocol):
    """Gives the states of the key that an element belongs to."""

    def state_internals_for(self, element: WindowedValue) -> StateInternals: ...


class StateAndTimerBundleCheckpointHandler:
    """Sets a timer and writes a state for each residual, in each of its windows.

    Args:
        timer_internals_factory: Gives the timers for a residual element.
        state_internals_factory: Gives the states for a residual element.
        input_coder: The coder of the stage's windowed input.
        window_coder: The coder of its windows, which are the namespaces.
        new_id: Returns a new id, which must be unique across restarts, too. Default: a random
            prefix with a counter.
        adjust: Maps each residual to the one that is scheduled, just before that. Default: the
            identity.
    """

    def __init__(
        self,
        timer_internals_factory: TimerInternalsFactory,
        state_internals_factory: StateInternalsFactory,
        input_coder: WindowedValueCoder,
        window_coder: Coder,
        *,
        new_id: Callable[[], str] | None = None,
        adjust: Callable[[Residual], Residual] = lambda residual: residual,
    ) -> None:
        self._timers = timer_internals_factory
        self._states = state_internals_factory
        self._decode = input_coder.get_impl().decode_nested
        self._encode_window = window_coder.get_impl().encode
        self._new_id = new_id or map(f"{uuid.uuid4().hex}-{{}}".format, itertools.count()).__next__
        self._adjust = adjust

    def on_checkpoint(self, response: Checkpoint) -> None:
        """Schedule the residuals of ``response``.

        A residual is due after the delay that it asks for, at once if it asks for none. It holds
        the watermark at the least of its output watermarks, or at the minimum if it has none.

        Raises:
            FnApiProtocolError: A residual is in no window, so that it would not be scheduled.
        """
        for root in response.residual_roots:
            application = root.application
            element = self._decode(application.element)
            if not element.windows:
                raise FnApiProtocolError(
                    f"the SDK has sent a residual of {application.transform_id!r} in no window"
                )
            delay_us = 0
            if root.HasField("requested_time_delay"):
                delay_us = max(0, _micros_of(root.requested_time_delay))
            watermarks = application.output_watermarks
            hold_us = min((_micros_of(watermarks[output]) for output in watermarks), default=MIN_US)
            self.schedule(Residual(element, delay_us, hold_us))

    def schedule(self, residual: Residual) -> None:
        """Let the residual be processed, once in each of its windows, after its delay."""
        element, delay_us, hold_us = self._adjust(residual)
        id_ = self._new_id()
        timers = self._timers.timer_internals_for(element)
        states = self._states.state_internals_for(element)
        fire_at_us = min(MAX_US, timers.processing_time_us() + delay_us)
        for part in in_each_window(element):
            namespace = self._encode_window(part.windows[0])
            states.write(namespace, id_, part)
            timers.set_timer(namespace, id_, fire_at_us, hold_us)


def _micros_of(time: Timestamp | Duration) -> int:
    """Return a time in microseconds, within those that Beam has.

    ``ToMicroseconds`` refuses Beam's extreme timestamps.
    """
    return max(MIN_US, min(MAX_US, int(time.seconds) * 1_000_000 + int(time.nanos) // 1_000))


class RefusingCheckpointHandler:
    """For stages that have no splittable DoFn."""

    def __init__(self, stage_name: str) -> None:
        self._stage_name = stage_name

    def on_checkpoint(self, result: BundleResult) -> None:
        """Fail the bundle if there are residuals."""
        if result.residual_roots or result.deferred:
            raise FnApiProtocolError(
                f"{self._stage_name}: self-checkpoint is only supported on splittable DoFns"
            )


class SdfKeySelector:
    """Returns the key under which a residual is stored: its element, which never changes.

    Args:
        input_coder: The coder of windowed
            KV<KV<element, KV<restriction, watermark state>>, size>.
        collection: The name of the collection that the stage reads, for the error.

    Raises:
        InvalidPipelineError: The coder is not of that shape.
    """

    def __init__(self, input_coder: WindowedValueCoder, collection: str) -> None:
        sized = input_coder.wrapped_value_coder
        if not (
            sized.is_kv_coder()
            and sized.key_coder().is_kv_coder()
            and sized.key_coder().value_coder().is_kv_coder()
        ):
            raise InvalidPipelineError(
                "a splittable DoFn reads KV<KV<element, KV<restriction, watermark state>>, size>, "
                f"but the coder of its input is {sized}",
                collection,
            )
        self._encode = sized.key_coder().key_coder().get_impl().encode
        self._latest: tuple[Any, bytes] | None = None  # a value and its key, which two backends use

    def __call__(self, element: WindowedValue) -> bytes:
        """Encode the element within a sized restriction."""
        value = element.value
        if self._latest is None or self._latest[0] is not value:
            self._latest = value, self._encode(value[0][0])
        return self._latest[1]


class SdfTimerInternals:
    """The backend's timers of one key, which each call sets as the current key."""

    def __init__(self, key: bytes, backend: KeyedTimers) -> None:
        self._key = key
        self._backend = backend

    def processing_time_us(self) -> int:
        return self._backend.processing_time_us()

    def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None:
        with self._backend.lock:
            self._backend.set_current_key(self._key)
            self._backend.set_timer(window, id_, fire_at_us, hold_us)


class SdfStateInternals:
    """The backend's values of one key, which each call sets as the current key."""

    def __init__(self, key: bytes, backend: KeyedValues) -> None:
        self._key = key
        self._backend = backend

    def write(self, window: bytes, id_: str, value: WindowedValue) -> None:
        with self._backend.lock:
            self._backend.set_current_key(self._key)
            self._backend.write(window, id_, value)

    def read(self, window: bytes, id_: str) -> WindowedValue:
        with self._backend.lock:
            self._backend.set_current_key(self._key)
            return self._backend.read(window, id_)

    def clear(self, window: bytes, id_: str) -> None:
        with self._backend.lock:
            self._backend.set_current_key(self._key)
            self._backend.clear(window, id_)


class SdfTimerInternalsFactory:
    """See ``TimerInternalsFactory``."""

    def __init__(self, key_of: SdfKeySelector, backend: KeyedTimers) -> None:
        self._key_of = key_of
        self._backend = backend

    def timer_internals_for(self, element: WindowedValue) -> SdfTimerInternals:
        return SdfTimerInternals(self._key_of(element), self._backend)


class SdfStateInternalsFactory:
    """See ``StateInternalsFactory``."""

    def __init__(self, key_of: SdfKeySelector, backend: KeyedValues) -> None:
        self._key_of = key_of
        self._backend = backend

    def state_internals_for(self, element: WindowedValue) -> SdfStateInternals:
        return SdfStateInternals(self._key_of(element), self._backend)


def in_each_window(element: WindowedValue) -> list[WindowedValue]:
    """Return the element once for each of its windows, in that window alone."""
    if len(element.windows) == 1:
        return [element]
    return [
        WindowedValue(element.value, element.timestamp, (window,), element.pane_info)
        for window in element.windows
    ]

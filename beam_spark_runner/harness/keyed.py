"""Stateful steps in the embedded harness: key by key, with timers that fire at each key's end.

Beam's operation stays what it is; what it asks for state and timers is ours. State lives in
Beam's own state objects while elements of its key arrive, and is dropped at the key's end, so
that memory follows one key and not the bundle. What a key piles up is written to the backend
from time to time, which spills.
"""

from typing import Any

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.transforms import core, userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.semantics.timers import Domain, Timer, TimerId, TimerQueue, expiry_us

KEYED_PAR_DO_URN = "beam_spark_runner:keyed_par_do:v1"

_DOMAINS = {
    TimeDomain.WATERMARK: Domain.EVENT_TIME,
    TimeDomain.REAL_TIME: Domain.PROCESSING_TIME,
}
_MOST_CALLS = 8192  # elements and timers of one key between two writings of its state


def use_keys(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Let the operations of this module run the steps that have state or timers."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        if payload.state_specs or payload.timer_family_specs:
            transform.spec.urn = KEYED_PAR_DO_URN


class KeyStates(bundle_processor.FnApiUserStateContext):  # type: ignore[misc]
    """State and timers of the key whose elements arrive. Threads: the bundle's."""

    def __init__(self, handler: Any, *coders_and_id: Any, allowed_lateness_us: int) -> None:
        super().__init__(handler, *coders_and_id)
        self.timers = TimerQueue()
        self._handler = handler
        self._allowed_lateness_us = allowed_lateness_us
        self._expiries: dict[Any, int] = {}

    def get_state(self, spec: userstate.StateSpec, key: Any, window: Any) -> Any:
        """Return the state object; the same one until the next ``write`` or ``forget``."""
        # One key at a time: it need not be hashed.
        state = self._all_states.get((spec, window))
        if state is None:
            state = self._all_states[spec, window] = self._create_state(spec, key, window)
        return state

    def get_timer(
        self, spec: userstate.TimerSpec, key: Any, window: Any, timestamp: Any, pane: Any
    ) -> "KeyTimer":
        """Return what sets and clears the timers of one family and window."""
        return KeyTimer(self, spec, key, window, timestamp, pane)

    def expiry_us(self, window: Any) -> int:
        """When a window is over."""
        found = self._expiries.get(window)
        if found is None:
            if len(self._expiries) > 10_000:
                self._expiries.clear()
            end_us = window.max_timestamp().micros
            found = self._expiries[window] = expiry_us(end_us, self._allowed_lateness_us)
        return found

    def write(self) -> None:
        """Hand to the backend what has piled up."""
        self.commit()
        super().reset()

    def forget(self) -> None:
        """Drop all state and all timers: the key's work is done."""
        if self._all_states:
            super().reset()
        self.timers.restart()
        self._handler.forget_keys()

    def reset(self) -> None:
        """Beam resets between bundles."""
        self.forget()


class KeyTimer(userstate.BaseTimer):  # type: ignore[misc]
    """What a DoFn sets and clears timers by."""

    __slots__ = ("_domain", "_family", "_key", "_pane", "_states", "_timestamp", "_window")

    def __init__(
        self,
        states: KeyStates,
        spec: userstate.TimerSpec,
        key: Any,
        window: Any,
        timestamp: Timestamp,
        pane: Any,
    ) -> None:
        self._states = states
        self._family = spec.name
        self._domain = _DOMAINS[spec.time_domain]
        self._key = key
        self._window = window
        self._timestamp = timestamp
        self._pane = pane

    def set(self, timestamp: Any, dynamic_timer_tag: str = "") -> None:
        """See Beam's ``BaseTimer``."""
        fires_us = whole_milliseconds(Timestamp.of(timestamp).micros)
        is_event_time = self._domain is Domain.EVENT_TIME
        timer = Timer(
            TimerId(self._family, dynamic_timer_tag, self._window),
            self._domain,
            fires_us,
            fires_us if is_event_time else self._timestamp.micros,
            (self._key, self._pane),
        )
        self._states.timers.set(timer, expires_us=self._states.expiry_us(self._window))

    def clear(self, dynamic_timer_tag: str = "") -> None:
        """See Beam's ``BaseTimer``."""
        self._states.timers.clear(TimerId(self._family, dynamic_timer_tag, self._window))


class KeyedParDo(operations.DoOperation):  # type: ignore[misc]
    """A ParDo that hears of the end of each key."""

    states: KeyStates
    _calls = 0

    def count(self, elements: int) -> None:
        """Note that so many elements of the key were processed."""
        self._calls += elements
        if self._calls > _MOST_CALLS:
            self._calls = 0
            self.states.write()

    def end_key(self) -> None:
        """Fire the timers of the key, until none is left, and forget its state."""
        timers = self.states.timers
        if timers:
            while (timer := timers.pop()) is not None:
                key, pane = timer.payload
                self.process_timer(
                    timer.id.family,
                    userstate.Timer(
                        user_key=key,
                        dynamic_timer_tag=timer.id.tag,
                        windows=(timer.id.window,),
                        clear_bit=False,
                        fire_timestamp=Timestamp(micros=timer.fires_us),
                        hold_timestamp=Timestamp(micros=timer.hold_us),
                        paneinfo=pane,
                    ),
                )
                self.count(1)
        self._calls = 0
        self.states.forget()


class ExpiringParDo(KeyedParDo):
    """One that also wants to hear when a window of a key expires (``on_window_expiration``)."""

    expiration_family: str

    def process(self, windowed_value: WindowedValue) -> None:
        """See Beam's ``DoOperation``."""
        key, _ = windowed_value.value
        for window in windowed_value.windows:
            expires_us = self.states.expiry_us(window)
            timer = Timer(
                TimerId(self.expiration_family, "", window),
                Domain.WINDOW_EXPIRATION,
                expires_us,
                whole_milliseconds(window.max_timestamp().micros),
                (key, windowed_value.pane_info),
            )
            self.states.timers.set(timer, expires_us=expires_us)
        super().process(windowed_value)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    KEYED_PAR_DO_URN, beam_runner_api_pb2.ParDoPayload
)
def _create_keyed_par_do(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
    consumers: dict[str, list[operations.Operation]],
) -> operations.DoOperation:
    (collection,) = (
        transform.inputs[name] for name in transform.inputs if name not in payload.side_inputs
    )
    coder = factory.get_windowed_coder(collection)
    strategy_id = factory.descriptor.pcollections[collection].windowing_strategy_id
    lateness_ms = factory.descriptor.windowing_strategies[strategy_id].allowed_lateness
    states = KeyStates(
        factory.state_handler,
        transform_id,
        coder.key_coder(),
        coder.window_coder,
        allowed_lateness_us=lateness_ms * 1000,
    )
    expiration_family = payload.on_window_expiration_timer_family_spec

    def create(*arguments: Any) -> KeyedParDo:
        *others, _ = arguments  # Beam's own context
        operation = (ExpiringParDo if expiration_family else KeyedParDo)(*others, states)
        operation.states = states
        if isinstance(operation, ExpiringParDo):
            operation.expiration_family = expiration_family
        return operation

    info = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context)
    operation: KeyedParDo = bundle_processor._create_pardo_operation(
        factory,
        transform_id,
        transform,
        consumers,
        info.serialized_dofn_data(),
        payload,
        operation_cls=create,
    )
    return operation

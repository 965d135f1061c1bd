"""Stateful steps that run key by key, with timers that fire after the key's last element.

The life cycle, the callbacks of timers, metrics and outputs are those of Beam's operation; state
and timers (``key_states``) and the call of ``process`` (``keyed_call``) are the runner's. State is
dropped or stored after each key, so that memory is bounded by one key and not by the bundle. A
large state is written to the backend from time to time, which spills.
"""

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.runners.worker import operations
from apache_beam.transforms import core, userstate
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.beam.chunks import output_handler
from beam_spark_runner.harness.beam.current_element import ChargedChunk
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.beam.keyed_call import KeyedCall
from beam_spark_runner.harness.bundle import Settled
from beam_spark_runner.harness.failures import ChargedTo
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.semantics.interruption import Interruption, uninterrupted
from beam_spark_runner.semantics.lateness import drop_expired
from beam_spark_runner.semantics.timers import (
    Domain,
    Instant,
    Timer,
    expiration_timer,
)
from beam_spark_runner.state.policy import BATCH, KeyPolicy

KEYED_PAR_DO_URN = "beam_spark_runner:keyed_par_do:v1"

MAX_CALLS = 8192  # elements and timers of one key between two writes of its state
MAX_BYTES = 64 << 20  # in its bags between two writes


class KeyedParDo(operations.DoOperation):  # type: ignore[misc]
    """A ParDo that gets elements key by key, and is notified of each key's end."""

    _calls = 0
    _policy = BATCH
    _interruption: Interruption | None = None

    def prepare(
        self,
        states: KeyStates,
        make_call: Callable[[Callable[..., None] | None], KeyedCall] | None,
        windowing: core.Windowing,
        output_tags: Sequence[str],
        expiration_family: str,
        *,
        may_interrupt: bool,
    ) -> None:
        """Set what ``DoOperation`` has in private attributes; called before ``setup``.

        Args:
            states: The state context that was passed to the operation's constructor.
            make_call: Makes the ``KeyedCall``; None: ``process`` has parameters that only Beam's
                invoker supports.
            windowing: The windowing of the outputs.
            output_tags: The tags of the transform's outputs, in order.
            expiration_family: The timer family of ``on_window_expiration``; empty: the DoFn has
                none.
            may_interrupt: Whether due timers of a key may fire in several epochs.
        """
        self._may_interrupt = may_interrupt
        self.states = states
        self._make_call = make_call
        self._windowing = windowing
        self._output_tags = output_tags
        self._expiration_family = expiration_family
        self._call: KeyedCall | None = None

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        self._outputs = output_handler(self, self._windowing, self._output_tags, refuses_text=True)

    def start(self) -> None:
        """See Beam's ``Operation``: before each bundle."""
        self._is_storing = self.states.is_storing
        self._call = None
        super().start()

    def use(self, policy: KeyPolicy) -> None:
        """Set the key policy of the bundle that begins."""
        self._policy = policy
        self._interruption = policy.interruption if self._may_interrupt else None
        self.states.clock_us = policy.clock_us
        self.states.timers.dropped = policy.dropped

    def process(self, element: WindowedValue) -> None:
        self.process_chunk([element.value], [element], Kind.OWN)

    @override
    def process_one(self, value: Any, origin: WindowedValue) -> None:
        self.process_chunk([value], [origin], Kind.OWN)

    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        """Process values of one key; each has the timestamp, windows and pane of its origin."""
        if self._is_storing:
            self.states.begin(values[0][0])
            values, origins = self._in_time(values, origins)
        expires = self._is_storing or bool(self._expiration_family)
        if self._make_call is None:
            for value, origin in zip(values, origins, strict=True):
                if expires:
                    self._expect_expiry(value[0], origin)
                super().process(origin.with_value(value))
            return
        call = self._call
        if call is None:
            # Side inputs can be read once a bundle has begun.
            call = self._call = self._make_call(self._expect_expiry if expires else None)
        handle = self._outputs.handle_process_outputs
        with self.scoped_process_state, ChargedChunk(self.step_name, call.current_element):
            call.run(values, origins, handle)

    def _in_time(
        self, values: list[Any], origins: list[WindowedValue]
    ) -> tuple[list[Any], list[WindowedValue]]:
        """Drop elements in windows that have expired."""
        policy, expiry_us = self._policy, self.states.expiry_us
        now_us = policy.watermark_us
        return drop_expired(
            values, origins, lambda window: expiry_us(window) <= now_us, policy.late
        )

    def _expect_expiry(self, key: Any, origin: WindowedValue) -> None:
        """Set the timers for the expiry of an element's windows: to notify the DoFn, drop state."""
        payload = key, origin.pane_info
        for window in origin.windows:
            timer, expires_us = expiration_timer(
                self._expiration_family, window, self.states.allowed_lateness_us, payload
            )
            self.states.timers.set(timer, expires_us=expires_us)

    def count(self, elements: int) -> None:
        """Count processed elements or timers of the key; write its state if there are many."""
        self._calls += elements
        if self._calls > MAX_CALLS or self.states.piled_bytes > MAX_BYTES:
            self._calls = 0
            with ChargedTo(self.step_name):  # coders may raise
                self.states.write()
            self._forget_call()

    def advance_key(self, to: Instant) -> None:
        """Advance the time of the key, fire its timers that are due, and store or drop the key.

        Args:
            to: The watermark and processing time to advance to.
        """
        self.fire_due(to)
        self._calls = 0
        with ChargedTo(self.step_name):  # coders may raise
            self.states.end()
        if self._call is not None:
            self._call.end_key()

    def begin_key(self, key: bytes) -> None:
        """Begin a key that gets no elements.

        Args:
            key: The key, encoded, nested.
        """
        self.states.begin_encoded(key)

    def restore(self, records: Sequence[bytes]) -> None:
        """Continue records that an earlier bundle has left; see ``SettlingInput``."""
        if records:
            raise InvariantError(f"{self.step_name} has left nothing, but {len(records)} records")

    def settle(self) -> Settled:
        """Finish what is in flight, or leave it: here, nothing is."""
        return Settled()

    def fire_due(self, to: Instant) -> None:
        """Advance the time of the key, and fire its timers that are due.

        Args:
            to: The watermark and processing time to advance to.
        """
        timers, interruption = self.states.timers, self._interruption
        loops = self._policy.loops
        while timers:
            if interruption is not None and interruption.stops(timers.would_leave, to):
                to, interruption = uninterrupted(to), None
            if (timer := timers.pop(to)) is None:
                break
            if timer.id.family:
                self._fire(timer)
                self.count(1)
                if loops is not None and timers.set_again:
                    loops.fired(timer.id.family, timers.set_again)
                    if timer.domain is Domain.PROCESSING_TIME:
                        loops.polls(timers.set_again)
            if interruption is not None:
                interruption.fired()
            if self._is_storing and timer.domain is Domain.WINDOW_EXPIRATION:
                self.states.drop_window(timer.id.window)
                self._forget_call()

    def _fire(self, timer: Timer) -> None:
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

    def reset(self) -> None:
        """See Beam's ``Operation``: between bundles."""
        super().reset()
        if self._call is not None:
            self._call.reset()

    def _forget_call(self) -> None:
        if self._call is not None:
            self._call.forget()

"""One bundle on an SDK harness in another process.

The bundle's thread does everything except sending and receiving bytes. It encodes
inputs, waits for room in the stream, and meanwhile passes outputs to their
receivers, so that a downstream stage in the same task runs on that thread, too.
"""

import contextlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import EnvironmentStartError, FnApiProtocolError, RunnerError
from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN, reader_of, writer_of
from beam_spark_runner.harness.bundle import (
    IDLE,
    Activity,
    BundleResult,
    Receiver,
    SideInputLookup,
)
from beam_spark_runner.harness.fn_api.protocol import (
    BundleProtocol,
    Complete,
    Deliver,
    Event,
    Fail,
    FailUserCode,
    InputEnded,
    Silent,
    TakeTimers,
)
from beam_spark_runner.harness.fn_api.services.state import BundleState
from beam_spark_runner.harness.remote.cache_tokens import side_input_tokens, user_state_token
from beam_spark_runner.harness.remote.callbacks import RemoteCallbacks
from beam_spark_runner.harness.remote.failures import user_failure
from beam_spark_runner.harness.remote.input import RemoteInput
from beam_spark_runner.harness.remote.keyed_bundle import TimersTaker, UserState
from beam_spark_runner.harness.remote.progress import HarnessProgress
from beam_spark_runner.harness.remote.pushed import InvalidSplitError, PushedElements
from beam_spark_runner.harness.remote.residuals import ResidualChecks
from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.stage_description import StageDescription

_LOGGER = logging.getLogger(__name__)

_ADDED_AT_ONCE = 1024
_SILENCE_S = 10.0
_SPLIT_TIMEOUT_S = 120.0  # SDKs split at once, or as soon as a tracker has its lock
_LAST_LINES_S = 1.0


class RemoteBundle:
    """See ``Bundle``."""

    def __init__(
        self,
        name: str,
        description: StageDescription,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        worker: ConnectedHarness,
        input_coder: WindowedValueCoder,
        sinks: Mapping[TransformId, tuple[WindowedValueCoder, Receiver]],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        user_state: UserState | None,
        families: Collection[TimerFamilyId],
        take_timers: TimersTaker | None,
        *,
        marks_keys: bool = False,
        claim_timeout_s: float = 0.0,
    ) -> None:
        self._name = name
        self._source = description.source
        self._step_names = frozenset(description.step_names.values())
        self._worker = worker
        self._connection = worker.connection
        self._data = worker.connection.data
        self._sinks = {
            sink: (reader_of(descriptor, sink, coder), receiver)
            for sink, (coder, receiver) in sinks.items()
        }
        tokens = side_input_tokens(side_inputs)
        if user_state is None:
            state = BundleState(side_inputs)
        else:
            state = BundleState(side_inputs, user_state.requests, on_pages=user_state.forget_cached)
            tokens.append(user_state_token(user_state.cache_token))
        self._state = state
        self._families = families
        self._take_timers = take_timers
        self._marks_keys = marks_keys
        self._claim_timeout_s = claim_timeout_s
        self._response: beam_fn_api_pb2.ProcessBundleResponse | None = None
        self._descriptor = descriptor
        self._is_splittable = description.is_splittable
        self._residuals = ResidualChecks(input_coder) if self._is_splittable else None
        self._metrics = worker.metrics
        self._pushed = PushedElements(descriptor, description.source)
        self._events = 0
        self._waits = False  # whether the thread waits for the harness
        self._data_due = time.monotonic() + worker.start_timeout_s
        self._instruction, self._inbox = self._connection.start_bundle(
            name, descriptor, tokens, state
        )
        self._input = RemoteInput(
            self._instruction,
            self._source,
            input_coder,
            writer_of(descriptor, self._source, input_coder),
            state,
            marks_keys=marks_keys,
        )
        self._protocol = BundleProtocol(self._instruction, self._sinks, families)
        self._progress = HarnessProgress(
            self._connection,
            self._metrics,
            self._instruction,
            description.step_names,
            is_splittable=description.is_splittable,
        )

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``."""
        if self._is_splittable:
            for value, origin in zip(values, origins, strict=True):
                self._input.add([value], [origin])
                if self._pushed.take(self._input.unsent()):
                    self.flush()  # a block for each element, so that the SDK can split between
                else:
                    self._input.drop()
            return
        for start in range(0, len(values), _ADDED_AT_ONCE):
            end = start + _ADDED_AT_ONCE
            self._input.add(values[start:end], origins[start:end])
            if self._input.is_full:
                self.flush()

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        self.push(values, origins)

    def enter(self) -> None:
        """Do nothing: the SDK harness has the metrics."""

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``. State is in the harness or in ``RemoteKeyedBundle``."""
        if not self._marks_keys:
            return
        self._input.end_key()
        if self._input.is_full:
            self.flush()

    def fire(self, family: TimerFamilyId, coded_timers: bytes) -> None:
        """See ``OneBundle.fire``."""
        timers = beam_fn_api_pb2.Elements.Timers(
            instruction_id=self._instruction,
            transform_id=family.transform,
            timer_family_id=family.family,
            timers=coded_timers,
        )
        self._send(beam_fn_api_pb2.Elements(timers=[timers]), len(coded_timers))

    def flush(self) -> None:
        """Send the elements that were pushed so far."""
        blocks, size = self._input.take()
        if not blocks:
            return
        self._send(beam_fn_api_pb2.Elements(data=blocks), size)
        while self._step(None):
            pass

    def _send_end(self) -> None:
        """Mark the main input and each timer family as complete."""
        data = beam_fn_api_pb2.Elements.Data(
            instruction_id=self._instruction, transform_id=self._source, is_last=True
        )
        timers = [
            beam_fn_api_pb2.Elements.Timers(
                instruction_id=self._instruction,
                transform_id=family.transform,
                timer_family_id=family.family,
                is_last=True,
            )
            for family in self._families
        ]
        self._send(beam_fn_api_pb2.Elements(data=[data], timers=timers), 0)

    def _send(self, elements: beam_fn_api_pb2.Elements, size: int) -> None:
        with self._waiting():
            while True:
                with self._data.changed:
                    self._data.changed.wait_for(
                        lambda: self._data.has_room or len(self._inbox), _SILENCE_S
                    )
                    if self._data.has_room:
                        break
                if not self._step(None):
                    self._require_data_stream()
        self._data.send(elements, size)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """See ``Bundle.split``."""
        split = beam_fn_api_pb2.ProcessBundleSplitRequest(instruction_id=self._instruction)
        desired = split.desired_splits[self._source]
        desired.fraction_of_remainder = fraction_of_remainder
        desired.estimated_input_elements = len(self._pushed)
        # A claim may hold the tracker's lock for as long as user code may be stuck.
        timeout_s = _SPLIT_TIMEOUT_S + self._claim_timeout_s
        answer = self._connection.ask(
            beam_fn_api_pb2.InstructionRequest(process_bundle_split=split), timeout_s
        )
        if answer is None and self._connection.error is None:
            raise self._lost_by_split(f"did not answer within {timeout_s:g} s")
        if answer is None:
            return ()  # the next push raises
        if answer.error:
            raise self._user_failure(answer.error)
        response = answer.process_bundle_split
        residuals = self._checked(response.residual_roots)
        try:
            for channel in response.channel_splits:
                residuals += self._pushed.cut(channel)
        except InvalidSplitError as error:
            raise self._lost_by_split(str(error)) from error
        return residuals

    def _user_failure(self, text: str) -> RunnerError:
        if self._state.failure is not None:  # which the SDK has raised in user code
            return self._state.failure
        return self._worker.explain(user_failure(text, self._name, self._step_names), self._name)

    def _lost_by_split(self, problem: str) -> RunnerError:
        """Lose the harness, since it may have split the bundle into unknown residuals."""
        error = FnApiProtocolError(f"the SDK harness was asked to split its bundle, and {problem}")
        self._connection.lose(error)
        return self._worker.explain(error, self._name)

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return self._progress.infos()

    def activity(self) -> Activity:
        """See ``Bundle.activity``."""
        if not self._waits:
            return IDLE
        step, seen = self._progress.activity()
        return Activity(step, (self._events, seen))

    def status(self) -> str:
        """See ``Bundle.status``."""
        return self._progress.status()

    def give_up(self, error: RunnerError) -> bool:
        """See ``Bundle.give_up``. The harness is lost."""
        self._connection.lose(error)
        return True

    def finish(self) -> BundleResult:
        self.flush()
        self._act(InputEnded())
        self._send_end()
        response = self._await_response()
        if self._state.failure is not None:  # user code has caught it
            raise self._state.failure
        infos = response.monitoring_infos
        for info in infos:
            if info.urn == LOG_MARK_URN:
                mark = self._metrics.counter(info)
                self._connection.logs.wait_for(mark or 0, _LAST_LINES_S)
        residuals = self._checked(response.residual_roots)
        callbacks: tuple[RemoteCallbacks, ...] = ()
        if response.requires_finalization:
            callbacks = (RemoteCallbacks(self._name, self._instruction, self._worker),)
        self._end(keep=bool(callbacks))
        return BundleResult(
            callbacks=callbacks,
            monitoring_infos=tuple(self._metrics.sound(infos)),
            residual_roots=(*residuals, *self._pushed.too_late()),
        )

    def _checked(
        self, roots: Sequence[beam_fn_api_pb2.DelayedBundleApplication]
    ) -> list[beam_fn_api_pb2.DelayedBundleApplication]:
        if self._residuals is not None:  # else the stage refuses all residuals
            try:
                self._residuals.check(roots)
            except FnApiProtocolError as error:
                raise self._worker.explain(error, self._name) from error
        return [*roots]

    def _await_response(self) -> beam_fn_api_pb2.ProcessBundleResponse:
        with self._waiting():
            while self._response is None:
                if not self._step(_SILENCE_S):
                    if self._protocol.awaits_outputs_only:
                        _LOGGER.warning(
                            "%s: the SDK harness has sent nothing for %.0f s. Its status:\n%s",
                            self._name,
                            _SILENCE_S,
                            self.status(),
                        )
                    else:
                        self._require_data_stream()
                    self._act(Silent(_SILENCE_S))
        return self._response

    def abort(self) -> None:
        """See ``Bundle.abort``. Kills a harness that has not answered: nothing else stops it."""
        self._end(kill=not self._protocol.has_answered)

    def _end(self, *, kill: bool = False, keep: bool = False) -> None:
        """End the bundle once. ``keep``: ``RemoteCallbacks`` still needs the harness."""
        self._connection.end_bundle(self._instruction)
        worker, self._worker = self._worker, None  # type: ignore[assignment]
        if keep:
            return
        if worker is not None:
            sdk_harnesses.release(worker, kill=kill)

    def _step(self, timeout_s: float | None) -> bool:
        """Take one event, waiting if there is a timeout; return False if there was none."""
        event = self._data.take(self._inbox, timeout_s)
        if event is None:
            return False
        self._events += 1
        self._act(event)
        return True

    def _require_data_stream(self) -> None:
        """Lose a harness that has neither opened its data stream in time nor answers requests.

        A harness that answers may still run ``setup`` of user code.
        """
        if self._data.is_open or time.monotonic() < self._data_due:
            return
        timeout_s = self._worker.start_timeout_s
        if self._progress.ask(timeout_s) is not None or self._data.is_open:
            self._data_due = time.monotonic() + timeout_s
            return
        self._connection.lose(
            EnvironmentStartError(
                f"the SDK harness opened no data stream within {timeout_s:g} s "
                "(--environment_start_timeout), and has not answered for as long"
            )
        )

    def _act(self, event: Event) -> None:
        for action in self._protocol.on(event):
            match action:
                case Deliver(transform, coded_elements):
                    self._deliver(transform, coded_elements)
                case TakeTimers(family, coded_timers):
                    assert self._take_timers is not None  # else no family is awaited
                    self._take_timers(family, coded_timers)
                case Complete(coded_response):
                    self._response = beam_fn_api_pb2.ProcessBundleResponse.FromString(
                        coded_response
                    )
                case FailUserCode(error_text):
                    raise self._user_failure(error_text)
                case Fail(error):
                    raise self._worker.explain(error, self._name)

    def _deliver(self, transform: TransformId, coded_elements: bytes) -> None:
        reader, receiver = self._sinks[transform]
        elements = reader.read(coded_elements)
        while True:
            try:
                some = next(elements, None)
            except MalformedBytesError as error:
                self._protocol.has_ended = True
                wrong = FnApiProtocolError(
                    f"the SDK harness sent bytes that are no elements of {transform}: {error}"
                )
                raise self._worker.explain(wrong, self._name) from error
            if some is None:
                return
            receiver.accept_chunk(*some)

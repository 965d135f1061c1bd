"""The messages between the thread of one bundle and the SDK harness that processes it.

While the thread waits for room in the stream, or for the response, it passes outputs to their
receivers, so that a downstream stage in the same task runs on that thread, too.
"""

import contextlib
import logging
import time
from collections.abc import Collection, Iterator, Mapping

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.errors import EnvironmentStartError, FnApiProtocolError, RunnerError
from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.harness.beam.plugin.block_edges import reader_of
from beam_spark_runner.harness.bundle import IDLE, Activity, Receiver
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
from beam_spark_runner.harness.fn_api.services.state_service import BundleState
from beam_spark_runner.harness.remote.bundle_progress import HarnessProgress
from beam_spark_runner.harness.remote.keyed_bundle import TimersTaker
from beam_spark_runner.harness.remote.sdk_failures import user_failure
from beam_spark_runner.harness.remote.sdk_harness import ConnectedHarness
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.stage_description import StageDescription

_LOGGER = logging.getLogger(__name__)

_SILENCE_S = 10.0
_MAX_SILENCES = 12
"""How many times in a row nothing comes before outputs count as lost: gRPC shows no part of a
message, and an element of 100 MB takes a busy or distant harness a while."""


class Exchange:
    """Sends a bundle's input to an SDK harness, and acts on what the harness sends.

    Threads: that of the bundle; ``activity`` and ``status`` may be called from any.

    Args:
        name: The name of the stage, for messages.
        description: The description of the stage.
        descriptor: What the harness runs.
        worker: The harness.
        sinks: The coder and the receiver of each output.
        families: The timers that the harness may send, and of which it expects an end.
        take_timers: Gets the timers that the harness sends; None: it sends none.
        state: Answers the state requests of the bundle.
        tokens: The cache tokens of the bundle.

    Attributes:
        instruction: The id of the bundle.
        progress: What the harness reports of the bundle.
    """

    def __init__(
        self,
        name: str,
        description: StageDescription,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        worker: ConnectedHarness,
        sinks: Mapping[TransformId, tuple[WindowedValueCoder, Receiver]],
        families: Collection[TimerFamilyId],
        take_timers: TimersTaker | None,
        state: BundleState,
        tokens: list[beam_fn_api_pb2.ProcessBundleRequest.CacheToken],
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
        self._families = families
        self._take_timers = take_timers
        self._state = state
        self._response: beam_fn_api_pb2.ProcessBundleResponse | None = None
        self._events = 0
        self._silences = 0  # since the last event
        self._waits = False  # whether the thread waits for the harness
        self._data_due = time.monotonic() + worker.start_timeout_s
        self.instruction, self._inbox = self._connection.start_bundle(
            name, descriptor, tokens, state
        )
        self._protocol = BundleProtocol(self.instruction, self._sinks, families)
        self.progress = HarnessProgress(
            self._connection,
            worker.metrics,
            self.instruction,
            description.step_names,
            is_splittable=description.is_splittable,
        )

    @property
    def has_answered(self) -> bool:
        """Whether the harness has answered the bundle's request."""
        return self._protocol.has_answered

    def send(self, elements: beam_fn_api_pb2.Elements, size: int) -> None:
        """Send elements or timers, as soon as there is room. ``size``: in bytes."""
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

    def take_arrived(self) -> None:
        """Act on all that the harness has sent so far."""
        while self._step(None):
            pass

    def complete(self) -> beam_fn_api_pb2.ProcessBundleResponse:
        """Send the end of the input, and wait for the response.

        Raises:
            RunnerError: The bundle has failed.
        """
        self._act(InputEnded())
        self._send_end()
        with self._waiting():
            while self._response is None:
                if not self._step(_SILENCE_S):
                    self._note_silence()
        if self._state.failure is not None:  # user code has caught it
            raise self._state.failure
        return self._response

    def ask(
        self, request: beam_fn_api_pb2.InstructionRequest, timeout_s: float
    ) -> beam_fn_api_pb2.InstructionResponse | None:
        """Ask the harness about the bundle.

        Returns:
            The answer; None: the harness was lost meanwhile, which the next ``send`` raises.

        Raises:
            RunnerError: It does not answer in time, for which it is lost, or answers with an error.
        """
        answer = self._connection.ask(request, timeout_s)
        if answer is None and self._connection.error is None:
            raise self.lost(f"did not answer within {timeout_s:g} s")
        if answer is not None and answer.error:
            raise self._user_failure(answer.error)
        return answer

    def lost(self, problem: str) -> RunnerError:
        """Lose the harness, since it may have split the bundle into unknown residuals."""
        error = FnApiProtocolError(f"the SDK harness was asked to split its bundle, and {problem}")
        self._connection.lose(error)
        return self.explained(error)

    def explained(self, error: RunnerError) -> RunnerError:
        """Return an error with what the harness has written."""
        return self._worker.explain(error, self._name)

    def activity(self) -> Activity:
        """See ``Bundle.activity``."""
        if not self._waits:
            return IDLE
        step, mark = self.progress.activity()
        return Activity(step, (self._events, mark))

    def _send_end(self) -> None:
        """Mark the main input and each timer family as complete."""
        data = beam_fn_api_pb2.Elements.Data(
            instruction_id=self.instruction, transform_id=self._source, is_last=True
        )
        timers = [
            beam_fn_api_pb2.Elements.Timers(
                instruction_id=self.instruction,
                transform_id=family.transform,
                timer_family_id=family.family,
                is_last=True,
            )
            for family in self._families
        ]
        self.send(beam_fn_api_pb2.Elements(data=[data], timers=timers), 0)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _step(self, timeout_s: float | None) -> bool:
        """Take one event, waiting if there is a timeout; return False if there was none."""
        event = self._data.next_event(self._inbox, timeout_s)
        if event is None:
            return False
        self._events += 1
        self._silences = 0
        self._act(event)
        return True

    def _note_silence(self) -> None:
        self._silences += 1
        if self._protocol.awaits_outputs_only:
            _LOGGER.warning(
                "%s: the SDK harness has sent nothing for %.0f s. Its status:\n%s",
                self._name,
                _SILENCE_S,
                self.progress.status(),
            )
        else:
            self._require_data_stream()
        if self._silences >= _MAX_SILENCES:
            self._act(Silent(self._silences * _SILENCE_S))

    def _require_data_stream(self) -> None:
        """Lose a harness that has neither opened its data stream in time nor answers requests.

        A harness that answers may still run ``setup`` of user code.
        """
        if self._data.is_open or time.monotonic() < self._data_due:
            return
        timeout_s = self._worker.start_timeout_s
        if self.progress.ask(timeout_s) is not None or self._data.is_open:
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
                    raise self.explained(error)

    def _user_failure(self, text: str) -> RunnerError:
        if self._state.failure is not None:  # which the SDK has raised in user code
            return self._state.failure
        return self.explained(user_failure(text, self._name, self._step_names))

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
                raise self.explained(wrong) from error
            if some is None:
                return
            receiver.accept_chunk(*some)

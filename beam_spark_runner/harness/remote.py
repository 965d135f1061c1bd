"""A stage on an SDK harness in another process, over the Fn API.

The bundle's thread does everything but the sending and receiving of bytes: it
encodes inputs, waits for room in the stream, and meanwhile hands outputs to their
receivers, so that a stage behind this one in the same task runs on that thread, too.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.coders.coder_impl import create_InputStream, create_OutputStream
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError, FnApiProtocolError
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.harness.bundle import BundleResult, Receiver, SideInputLookup
from beam_spark_runner.harness.protocol import (
    BundleProtocol,
    Complete,
    Deliver,
    Event,
    Fail,
    FailUserCode,
    InputEnded,
    Silent,
)
from beam_spark_runner.harness.sdk_workers import HarnessSettings, SdkWorker, sdk_workers
from beam_spark_runner.harness.services.state import BundleState
from beam_spark_runner.harness.spill import StreamedValues
from beam_spark_runner.portable.descriptor import StageDescription
from beam_spark_runner.portable.wire import coder_seen_by_the_runner

_FIRST_BLOCK_BYTES = 16 << 10
_BLOCK_BYTES = 1 << 20
"""Blocks grow from one to the other: the harness begins early, and then has much at a time."""
_DELIVERED_AT_ONCE = 512
_SILENCE_S = 10.0
_STEP_IN_MESSAGE = re.compile(r"\[while running '(.*?)'\]", re.DOTALL)
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n"


class RemoteStage:
    """See ``StageHarness``. Its DoFns are kept by the SDK harness, from bundle to bundle."""

    def __init__(
        self, name: str, description: StageDescription, settings: HarnessSettings, stage_id: int
    ) -> None:
        self._name = name
        self._description = description
        self._settings = settings
        self._descriptor = description.descriptor()
        digest = hashlib.sha256(description.coded_descriptor).hexdigest()[:16]
        self._id = f"{settings.job_id}/{stage_id}/{digest}"
        self._input_coder = self._coder(description.source)
        self._output_coders = {
            collection: self._coder(sink) for sink, collection in description.sinks.items()
        }

    def _coder(self, edge: TransformId) -> WindowedValueCoder:
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(
            self._descriptor.transforms[edge].spec.payload
        )
        return coder_seen_by_the_runner(self._descriptor, port.coder_id)

    @property
    def input_coder(self) -> WindowedValueCoder:
        return self._input_coder

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        return self._output_coders

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
    ) -> "RemoteBundle":
        """See ``StageHarness.start_bundle``. What ``setup`` raises may come later.

        Raises:
            EnvironmentStartError: there is no harness.
        """
        worker = sdk_workers.acquire(self._description.coded_environment, self._settings)
        descriptor = self._description.descriptor(worker.url)
        descriptor.id = self._id
        return RemoteBundle(
            self._name,
            self._description,
            descriptor,
            worker,
            self._input_coder,
            {
                sink: (self._output_coders[collection], receivers[collection])
                for sink, collection in self._description.sinks.items()
            },
            side_inputs,
        )

    def close(self) -> None:
        """Nothing to do: the SDK tears down what it has not used for a while."""


class RemoteBundle:
    """See ``Bundle``."""

    def __init__(
        self,
        name: str,
        description: StageDescription,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        worker: SdkWorker,
        input_coder: WindowedValueCoder,
        sinks: Mapping[TransformId, tuple[WindowedValueCoder, Receiver]],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
    ) -> None:
        self._name = name
        self._source = description.source
        self._worker = worker
        self._connection = worker.connection
        self._data = worker.connection.data
        self._encode_to = input_coder.get_impl().encode_to_stream
        self._element_coder = input_coder.wrapped_value_coder
        self._sinks = {
            sink: (coder.get_impl().decode_from_stream, receiver)
            for sink, (coder, receiver) in sinks.items()
        }
        self._stream = create_OutputStream()
        self._block_bytes = _FIRST_BLOCK_BYTES
        self._state = BundleState(side_inputs)
        self._groups = 0
        self._response: beam_fn_api_pb2.ProcessBundleResponse | None = None
        self._descriptor = descriptor
        (self._input,) = descriptor.transforms[description.source].outputs.values()
        self._is_splittable = description.is_splittable
        self._pushed: list[bytes] = []  # each element, where a part may be given back
        self._too_late: list[bytes] = []  # pushed after the input was cut
        self._is_cut = False
        self._splitting = threading.Lock()
        self._instruction, self._inbox = self._connection.start_bundle(
            descriptor, _cache_tokens(side_inputs), self._state
        )
        self._protocol = BundleProtocol(self._instruction, self._sinks)

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``."""
        encode_to, stream = self._encode_to, self._stream
        for value, origin in zip(values, origins, strict=True):
            if type(value) is tuple and type(value[1]) is StreamedValues:
                self._push_group(value[0], value[1], origin)
            else:
                encode_to(origin.with_value(value), stream, True)
            if self._is_splittable:
                if self._is_taken(stream.get()):  # blocks of one element
                    self.flush()
                else:
                    self._stream = create_OutputStream()
                stream = self._stream
                continue
            if stream.size() >= self._block_bytes:
                self.flush()
                stream = self._stream

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        self.push(values, origins)

    def _push_group(self, key: Any, values: StreamedValues, origin: WindowedValue) -> None:
        """Hand over a key, and a token by which the SDK reads the values, page by page."""
        # Whoever reads the state does so in another thread: nothing may change any more.
        values.drain(keep=True)
        self._groups += 1
        token = b"group-%d" % self._groups
        self._state.keep_group(token, _NestedValues(values))
        # An empty list is four bytes, a count. Its place takes: unknown length, no element
        # here, the rest in the state.
        nothing = create_OutputStream()
        self._encode_to(origin.with_value((key, [])), nothing, True)
        stream = self._stream
        stream.write(nothing.get()[:-4])
        stream.write_bigendian_int32(-1)
        stream.write_var_int64(-1)
        stream.write(token, True)

    def enter(self) -> None:
        """Nothing to do: the SDK counts by itself."""

    def flush(self) -> None:
        """Send what was pushed so far."""
        if not self._stream.size():
            return
        coded, self._stream = self._stream.get(), create_OutputStream()
        self._block_bytes = min(2 * self._block_bytes, _BLOCK_BYTES)
        self._send(coded, is_last=False)
        while self._step(None):
            pass

    def _send(self, coded: bytes, *, is_last: bool) -> None:
        while True:
            with self._data.changed:
                self._data.changed.wait_for(lambda: self._data.has_room or len(self._inbox))
                has_room = self._data.has_room
            if has_room:
                break
            self._step(None)
        data = beam_fn_api_pb2.Elements.Data(
            instruction_id=self._instruction, transform_id=self._source, data=coded, is_last=is_last
        )
        self._data.send(beam_fn_api_pb2.Elements(data=[data]), len(coded))

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """See ``Bundle.split``."""
        split = beam_fn_api_pb2.ProcessBundleSplitRequest(instruction_id=self._instruction)
        desired = split.desired_splits[self._source]
        desired.fraction_of_remainder = fraction_of_remainder
        desired.estimated_input_elements = len(self._pushed)
        answer = self._connection.ask(
            beam_fn_api_pb2.InstructionRequest(process_bundle_split=split)
        )
        if answer is None:
            return ()  # whoever pushes is told
        if answer.error:
            raise _user_failure(answer.error, self._name)
        response = answer.process_bundle_split
        residuals = list(response.residual_roots)
        with self._splitting:
            for channel in response.channel_splits:
                first = channel.first_residual_element
                residuals += map(self._not_begun, self._pushed[first:])
                del self._pushed[first:]
                self._is_cut = True
        return residuals

    def _is_taken(self, coded_element: bytes) -> bool:
        """Note an element; once the input was cut, the SDK drops what comes behind the cut."""
        with self._splitting:
            if self._is_cut:
                self._too_late.append(coded_element)
                return False
            self._pushed.append(coded_element)
            return True

    def _not_begun(self, coded_element: bytes) -> beam_fn_api_pb2.DelayedBundleApplication:
        """Say of an element what an SDK says of a residual."""
        (consumer,) = (
            (id_, tag)
            for id_, each in self._descriptor.transforms.items()
            for tag, collection in each.inputs.items()
            if collection == self._input
        )
        return beam_fn_api_pb2.DelayedBundleApplication(
            application=beam_fn_api_pb2.BundleApplication(
                transform_id=consumer[0], input_id=consumer[1], element=coded_element
            )
        )

    def finish(self) -> BundleResult:
        self.flush()
        self._act(InputEnded())
        self._send(b"", is_last=True)
        while self._response is None:
            if not self._step(_SILENCE_S):
                self._act(Silent(_SILENCE_S))
        self._end()
        return BundleResult(
            monitoring_infos=tuple(
                info.SerializeToString() for info in self._response.monitoring_infos
            ),
            residual_roots=(
                *self._response.residual_roots,
                *map(self._not_begun, self._too_late),
            ),
        )

    def abort(self) -> None:
        """See ``Bundle.abort``. Nothing stops an SDK but its end: user code must not run on."""
        self._end(kill=not self._protocol.has_ended)

    def _end(self, *, kill: bool = False) -> None:
        self._connection.end_bundle(self._instruction)
        worker, self._worker = self._worker, None  # type: ignore[assignment]
        if worker is not None:
            sdk_workers.release(worker, kill=kill)

    def _step(self, timeout_s: float | None) -> bool:
        """Take one event; wait for it if there is a timeout. False: there was none."""
        with self._data.changed:
            if timeout_s is not None:
                self._data.changed.wait_for(lambda: len(self._inbox), timeout_s)
            event = self._inbox.take()
        if event is None:
            return False
        self._act(event)
        return True

    def _act(self, event: Event) -> None:
        for action in self._protocol.on(event):
            match action:
                case Deliver(transform, coded_elements):
                    self._deliver(transform, coded_elements)
                case Complete(coded_response):
                    self._response = beam_fn_api_pb2.ProcessBundleResponse.FromString(
                        coded_response
                    )
                case FailUserCode(error_text):
                    raise _user_failure(error_text, self._name)
                case Fail(error):
                    raise self._worker.explain(error)

    def _deliver(self, transform: TransformId, coded_elements: bytes) -> None:
        decode_from, receiver = self._sinks[transform]
        stream = create_InputStream(coded_elements)
        while stream.size() > 0:
            elements: list[WindowedValue] = []
            try:
                while stream.size() > 0 and len(elements) < _DELIVERED_AT_ONCE:
                    elements.append(decode_from(stream, True))
            except Exception as error:
                self._protocol.has_ended = True
                raise FnApiProtocolError(
                    f"{self._name}: the SDK harness sent bytes that are no elements of "
                    f"{transform}: {type(error).__name__}: {error}"
                ) from error
            receiver.accept_chunk([element.value for element in elements], elements)


class _NestedValues:
    """Values of a group as the state service hands them out."""

    def __init__(self, values: StreamedValues) -> None:
        self._values = values

    def __iter__(self) -> Iterator[bytes]:
        for value in self._values:
            stream = create_OutputStream()
            stream.write(value, True)
            yield stream.get()


def _cache_tokens(
    side_inputs: Mapping[tuple[str, str], SideInputLookup],
) -> list[beam_fn_api_pb2.ProcessBundleRequest.CacheToken]:
    """Side inputs never change: their ids let the SDK keep what it has read of them."""
    token = beam_fn_api_pb2.ProcessBundleRequest.CacheToken
    return [
        token(
            token=lookup.id.encode(),
            side_input=token.SideInput(transform_id=transform, side_input_id=name),
        )
        for (transform, name), lookup in side_inputs.items()
    ]


def _user_failure(text: str, stage_name: str) -> BundleFailedError:
    """Charge the SDK's error text to the step that it names, or to the stage.

    Python's SDK raises a copy of what user code raised, with the step in its message; the
    original, with the user's frames, stands before it.
    """
    steps = _STEP_IN_MESSAGE.findall(text)
    original, _, copy = text.partition(_CONTEXT)
    if not steps or not copy:
        original = text
    return BundleFailedError(steps[0] if steps else stage_name, _message(original), original)


def _message(traceback_text: str) -> str:
    """Return what stands behind the last frame of a traceback."""
    lines = traceback_text.rstrip().splitlines()
    last_frame = max(
        (number for number, line in enumerate(lines) if line.startswith('  File "')), default=-1
    )
    rest = lines[last_frame + 1 :]
    while len(rest) > 1 and rest[0].startswith("    "):
        rest = rest[1:]
    return "\n".join(rest)

"""The Python SDK's own bundle processor, run inside the PySpark worker.

No gRPC, no port, no copy: elements go in as objects, and the operations at the
stage's edges hand objects out. The processor is kept between tasks, so that
``setup`` runs once per worker; another job's arrival tears it down. (A Python
worker leaves by ``os._exit``: nothing can be left to atexit.)

This is the one file that touches ``apache_beam.runners.worker``.
"""

import contextlib
import logging
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NoReturn

from apache_beam.coders import WindowedValueCoder, coder_impl
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, sdk_worker, statesampler

from beam_spark_runner.core.errors import BundleFailedError, FnApiProtocolError
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.harness.bundle import BundleResult, Receiver, SideInputLookup
from beam_spark_runner.portable.descriptor import SINK_URN, SOURCE_URN, StageDescription

_LOGGER = logging.getLogger(__name__)
_STEP_IN_MESSAGE = re.compile(r"\[while running '(.*?)'\]", re.DOTALL)
_MACHINERY = re.compile(r"(^|/)apache_beam/(runners/|transforms/core\.py)|/beam_spark_runner/")


class _SinkOperation(bundle_processor.RunnerIOOperation):  # type: ignore[misc]
    """Leaf of a stage. ``start_bundle`` puts the receiver in the place of ``process``.

    Beam's compiled code looks ``process`` up on the instance, so that the
    receiver is called straight from it.
    """


def _create_edge(
    operation: Callable[..., Any],
    factory: Any,
    transform_id: str,
    transform: Any,
    port: beam_fn_api_pb2.RemoteGrpcPort,
    consumers: dict[str, list[Any]],
) -> Any:
    return operation(
        common.NameContext(transform.unique_name, transform_id),
        transform.unique_name,
        consumers,
        factory.counter_factory,
        factory.state_sampler,
        factory.get_coder(port.coder_id),
        transform_id,
        None,  # the data channel, by position: Beam 2.77 renamed it
    )


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    SOURCE_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_source(*args: Any) -> Any:
    return _create_edge(bundle_processor.DataInputOperation, *args)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    SINK_URN, beam_fn_api_pb2.RemoteGrpcPort
)
def _create_sink(*args: Any) -> Any:
    return _create_edge(_SinkOperation, *args)


class _StateHandler(sdk_worker.CachingStateHandler):  # type: ignore[misc]
    """Answers the SDK's state requests from this process. Only side inputs exist so far."""

    def __init__(self) -> None:
        self.side_inputs: Mapping[tuple[str, str], SideInputLookup] = {}

    @contextlib.contextmanager
    def process_instruction_id(self, bundle_id: str, cache_tokens: Iterable[Any]) -> Iterator[None]:
        yield

    def blocking_get(
        self, state_key: beam_fn_api_pb2.StateKey, coder: coder_impl.CoderImpl
    ) -> Iterable[Any]:
        kind = state_key.WhichOneof("type")
        if kind == "iterable_side_input":
            request, key = state_key.iterable_side_input, None
        elif kind == "multimap_side_input":
            request, key = state_key.multimap_side_input, state_key.multimap_side_input.key
        else:
            raise FnApiProtocolError(f"the SDK asked for state of kind {kind}")
        lookup = self.side_inputs[request.transform_id, request.side_input_id]
        return _DecodedValues(lookup.values(request.window, key), coder)

    def extend(self, state_key: Any, coder: Any, elements: Any) -> NoReturn:
        raise FnApiProtocolError("the SDK wrote state in a stage that has none")

    def clear(self, state_key: Any) -> NoReturn:
        raise FnApiProtocolError("the SDK cleared state in a stage that has none")

    def done(self) -> None:
        """Nothing to wait for: no request is ever under way."""


class _DecodedValues:
    """Nested encodings, decoded afresh by each iteration."""

    def __init__(self, coded: Iterable[bytes], coder: coder_impl.CoderImpl) -> None:
        self._coded, self._coder = coded, coder

    def __iter__(self) -> Iterator[Any]:
        decode, stream = self._coder.decode_from_stream, coder_impl.create_InputStream
        return (decode(stream(value), True) for value in self._coded)


class EmbeddedStage:
    """A stage on the Python SDK in this process.

    Threads: one bundle at a time, all calls of a bundle from one thread.
    """

    def __init__(self, name: str, description: StageDescription) -> None:
        """Build the operations and run ``setup``.

        Raises:
            BundleFailedError: a DoFn does not unpickle, or its ``setup`` raised.
        """
        self._name = name
        self._description = description
        self._state = _StateHandler()
        self._stopping: threading.Thread | None = None
        # It logs what user code raises, once per step and task; the runner reports it once.
        logging.getLogger(common.__name__).setLevel(logging.CRITICAL)
        with _failures_of(name):
            self._processor = bundle_processor.BundleProcessor(
                frozenset(), description.descriptor(), self._state, data_channel_factory=None
            )
        self._source = self._processor.ops[description.source]
        self._sinks: dict[PCollectionId, _SinkOperation] = {
            collection: self._processor.ops[sink] for sink, collection in description.sinks.items()
        }
        self._is_fresh = True

    @property
    def input_coder(self) -> WindowedValueCoder:
        return self._source.windowed_coder

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        return {collection: sink.windowed_coder for collection, sink in self._sinks.items()}

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
    ) -> "EmbeddedBundle":
        """See ``StageHarness.start_bundle``."""
        if self._stopping is not None:
            self._stopping.join()
        if not self._is_fresh:
            self._processor.reset()
        self._is_fresh = False
        self._state.side_inputs = side_inputs
        for collection, sink in self._sinks.items():
            sink.process = receivers[collection]
        return EmbeddedBundle(
            self, self._name, self._description.step_names, self._processor, self._source
        )

    def stop_sampling(self, sampler: statesampler.StateSampler) -> None:
        """End the sampler's thread, which may sleep for up to 200 ms, without waiting for it."""
        self._stopping = threading.Thread(target=sampler.stop_if_still_running, daemon=True)
        self._stopping.start()

    def close(self) -> None:
        """Run ``teardown``. What it raises is logged: the work is done already."""
        try:
            self._processor.shutdown()
        except Exception:
            _LOGGER.exception("teardown failed in %s", self._name)


class EmbeddedBundle:
    """See ``Bundle``."""

    def __init__(
        self,
        stage: EmbeddedStage,
        name: str,
        step_names: Mapping[TransformId, str],
        processor: Any,
        source: Any,
    ) -> None:
        self._stage = stage
        self._step_names = step_names
        self._processor = processor
        self._sampler = processor.state_sampler
        self._execution = bundle_processor.ExecutionContext(instruction_id="embedded")
        self._receive: Receiver = source.receivers[0].receive
        before = statesampler.get_current_tracker()
        try:
            with _failures_of(name):
                self._sampler.start()
                for operation in reversed(processor.ops.values()):
                    operation.execution_context = self._execution
                    operation.start()
        except BaseException:
            self.abort()
            raise
        finally:
            statesampler.set_current_tracker(before)

    @property
    def push(self) -> Receiver:
        return self._receive

    def enter(self) -> None:
        """Make user metrics of this thread count for this bundle, until another one enters."""
        statesampler.set_current_tracker(self._sampler)

    def push_from_within(self, windowed_value: Any) -> None:
        """Like ``push``, for an element that another bundle hands over while it runs itself."""
        before = statesampler.get_current_tracker()
        statesampler.set_current_tracker(self._sampler)
        try:
            self._receive(windowed_value)
        finally:
            statesampler.set_current_tracker(before)

    def finish(self) -> BundleResult:
        self.enter()
        try:
            for operation in self._processor.ops.values():
                operation.finish()
            if self._execution.delayed_applications:
                operation, _ = self._execution.delayed_applications[0]
                raise FnApiProtocolError(
                    f"{self._step_names.get(operation.name_context.transform_id, '?')}: "
                    "self-checkpoint: this runner does not reschedule the remainder that a "
                    "splittable DoFn defers"
                )
            infos = tuple(info.SerializeToString() for info in self._processor.monitoring_infos())
        finally:
            statesampler.set_current_tracker(None)
        self._stage.stop_sampling(self._sampler)
        return BundleResult(monitoring_infos=infos)

    def abort(self) -> None:
        statesampler.set_current_tracker(None)
        self._stage.stop_sampling(self._sampler)


@contextlib.contextmanager
def _failures_of(stage_name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise failure_of(error, stage_name) from error


def failure_of(error: BaseException, stage_name: str) -> BundleFailedError:
    """Name the step that raised.

    Beam puts the step into the message of what user code raises; what is
    raised elsewhere (a coder, ``setup``) is charged to the stage.
    """
    if isinstance(error, BundleFailedError):
        return error
    steps = _STEP_IN_MESSAGE.findall(str(error)) or _steps_being_created(error)
    if getattr(error, "_tagged_with_step", False) and error.__context__ is not None:
        error = error.__context__  # Beam raises a copy, whose message has the step in it
    text = "".join(traceback.format_exception(type(error), error, _users_frames(error)))
    message = f"{type(error).__name__}: {error}"
    failure = BundleFailedError(steps[0] if steps else stage_name, message, text)
    # Beam shall not add the steps through which it passes on its way to us.
    failure._tagged_with_step = True  # type: ignore[attr-defined]
    return failure


def _steps_being_created(error: BaseException) -> list[str]:
    """Find the step whose DoFn did not unpickle, in the frames of Beam's factory."""
    creates = bundle_processor.BeamTransformFactory.create_operation.__code__
    return [
        frame.f_locals["transform_proto"].unique_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code is creates and "transform_proto" in frame.f_locals
    ][::-1]


def _users_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames of Beam's and ours that led to user code."""
    frames = error.__traceback__
    while frames is not None and _MACHINERY.search(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames or error.__traceback__


_stages: dict[tuple[str, int], EmbeddedStage] = {}


def stage_for(
    job_id: str, stage_id: int, name: str, description: StageDescription
) -> EmbeddedStage:
    """Return the stage, kept from an earlier task of this worker where there was one.

    A worker serves one job for as long as it lasts: stages of other jobs are torn down.
    """
    for key in [key for key in _stages if key[0] != job_id]:
        _stages.pop(key).close()
    key = (job_id, stage_id)
    if key not in _stages:
        _stages[key] = EmbeddedStage(name, description)
    return _stages[key]


def discard(job_id: str, stage_id: int) -> None:
    """Tear a stage down whose bundle failed: its DoFns are in no known state."""
    stage = _stages.pop((job_id, stage_id), None)
    if stage is not None:
        stage.close()

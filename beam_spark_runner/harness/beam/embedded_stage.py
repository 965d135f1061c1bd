"""Runs stages by the Python SDK's own bundle processor, inside the Python worker.

No gRPC, no port, no copy: the operations at the stage's edges take and return
elements as objects. The processor is kept between tasks, so that ``setup``
runs once per worker; the end of its job tears it down, see ``engine.worker.runtime``.
(A Python worker exits by ``os._exit``, which does not run atexit handlers.)

This package is the one place that touches ``apache_beam.runners.worker``.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operations, statesampler
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.beam.chunked_steps import use_chunks
from beam_spark_runner.harness.beam.chunks import ChunkedParDo
from beam_spark_runner.harness.beam.current_element import ElementOfErrors
from beam_spark_runner.harness.beam.element_sizes import need_no_sizes
from beam_spark_runner.harness.beam.estimators import use_fast_estimators
from beam_spark_runner.harness.beam.keyed import KeyedParDo
from beam_spark_runner.harness.beam.keyed_creation import use_keys
from beam_spark_runner.harness.beam.patches import patch_beam
from beam_spark_runner.harness.beam.sampling import Sampling
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.harness.beam.source_sink import SinkOperation, SourceOperation
from beam_spark_runner.harness.beam.splittable_steps import residual_of
from beam_spark_runner.harness.beam.state_handler import EmbeddedStateHandler
from beam_spark_runner.harness.beam.thread_stacks import stacks
from beam_spark_runner.harness.beam.timing import Timing, timed_by
from beam_spark_runner.harness.beam.unbounded_readers import StageReaders
from beam_spark_runner.harness.bundle import (
    Activity,
    BundleResult,
    Receiver,
    Settled,
    SideInputLookup,
)
from beam_spark_runner.harness.failures import failure_of, failures_of
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.semantics.timers import NEVER_US, Instant, held
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from beam_spark_runner.state.requests import use_maps

_LOGGER = logging.getLogger(__name__)


class EmbeddedStage:
    """A stage on the Python SDK in this process.

    Threads: one bundle at a time, all calls of a bundle from one thread.
    """

    def __init__(
        self,
        name: str,
        description: StageDescription,
        side_inputs: frozenset[str] = frozenset(),
        cache: DecodedCache | None = None,
        *,
        step_chunks: StepChunks = "auto",
        sampler: ElementOfErrors | None = None,
    ) -> None:
        """Build the operations and run ``setup``.

        Args:
            name: The name of the stage, for messages.
            description: The description of the stage.
            side_inputs: The ids of the side inputs that the stage reads.
            cache: A cache of decoded values of side inputs; None: its own.
            step_chunks: Whether steps process chunks of elements.
            sampler: Is offered the elements that steps emit. None: nothing is.

        Raises:
            BundleFailedError: A DoFn cannot be unpickled, or its ``setup`` raised.
        """
        self.side_inputs = side_inputs
        self._name, self._sampler = name, sampler or ElementOfErrors()
        self._description = description
        # Beam would log exceptions of user code for each step and task; the runner reports one.
        logging.getLogger(common.__name__).setLevel(logging.CRITICAL)
        self._descriptor = description.descriptor()
        use_maps(self._descriptor)
        self._state = EmbeddedStateHandler(self._descriptor, description.step_names, cache)
        use_chunks(self._descriptor, step_chunks)
        use_keys(self._descriptor)
        use_fast_estimators()
        patch_beam()
        self._readers = StageReaders()
        self._steps = self._make_steps()
        self._idle: list[_Steps] = []  # further steps that have no pending callbacks
        self._is_closed = False
        self._lock = threading.Lock()  # callbacks run in their own thread

    def _make_steps(self) -> "_Steps":
        with failures_of(self._name), self._readers.shared():
            processor = bundle_processor.BundleProcessor(
                frozenset(),
                self._descriptor,
                self._state,
                data_channel_factory=None,
                data_sampler=self._sampler,
            )
            need_no_sizes(processor.ops.values())
        return _Steps(processor, self._description)

    @property
    def input_coder(self) -> WindowedValueCoder:
        return self._steps.source.windowed_coder

    @property
    def output_coders(self) -> Mapping[PCollectionId, WindowedValueCoder]:
        return {collection: sink.windowed_coder for collection, sink in self._steps.sinks.items()}

    def start_bundle(
        self,
        receivers: Mapping[PCollectionId, Receiver],
        side_inputs: Mapping[tuple[str, str], SideInputLookup],
        policy: KeyPolicy = BATCH,
    ) -> "EmbeddedBundle":
        """See ``StageHarness.start_bundle``."""
        with self._lock:
            if self._steps.has_callbacks:  # Beam's processor would forget them
                self._steps = self._idle.pop() if self._idle else self._make_steps()
        self._steps.begin()
        self._state.begin(side_inputs, policy.store)
        for collection, sink in self._steps.sinks.items():
            sink.deliver_to(receivers[collection])
        return EmbeddedBundle(self, self._name, self._description.step_names, self._steps, policy)

    def take_callbacks(self, steps: "_Steps") -> "tuple[EmbeddedCallbacks, ...]":
        """Return the callbacks that the bundle which has just finished has registered."""
        if not steps.processor.requires_finalization():
            return ()
        steps.has_callbacks = True
        return (EmbeddedCallbacks(self, steps),)

    def take_back(self, steps: "_Steps") -> None:
        """Allow steps to be reused, whose callbacks have run or been dropped. Threads: any."""
        with self._lock:
            steps.has_callbacks = False
            if not self._is_closed:
                if steps is not self._steps:
                    self._idle.append(steps)
                return
        self._shut_down(steps)

    def close(self) -> None:
        """Run ``teardown``; for steps with pending callbacks, after these."""
        with self._lock:
            self._is_closed = True
            idle = [steps for steps in (self._steps, *self._idle) if not steps.has_callbacks]
        for steps in idle:
            self._shut_down(steps)
        self._readers.close()

    @property
    def may_tear_down(self) -> bool:
        """Whether ``close`` may run user code; False only if it certainly does not."""
        return any(map(_may_tear_down, self._steps.processor.ops.values()))

    def _shut_down(self, steps: "_Steps") -> None:
        for operation in steps.processor.ops.values():
            try:
                operation.teardown()
            except BaseException as error:  # the results are complete; others are torn down, too
                failure = failure_of(error, self._name)
                _LOGGER.error(
                    "teardown of %s raised %s\n%s",
                    *(failure.step, failure.cause, failure.traceback_text),
                )


def _may_tear_down(operation: operations.Operation) -> bool:
    if isinstance(operation, SourceOperation | SinkOperation | operations.FlattenOperation):
        return False
    users = getattr(operation, "users_fn", None)
    return not any(
        isinstance(users, kind) and type(users).teardown is kind.teardown
        for kind in (beam.DoFn, beam.CombineFn)
    )


class _Steps:
    """The operations of a stage, whose DoFns are set up once and process one bundle at a time."""

    def __init__(self, processor: Any, description: StageDescription) -> None:
        self.processor = processor
        self.source: SourceOperation = processor.ops[description.source]
        self.sinks: dict[PCollectionId, SinkOperation] = {
            collection: processor.ops[sink] for sink, collection in description.sinks.items()
        }
        operations = list(processor.ops.values())
        self.chunked = [op for op in operations if isinstance(op, ChunkedParDo)]
        self.keyed = [op for op in operations if isinstance(op, KeyedParDo)]
        self.sampling = Sampling(processor.state_sampler)
        self.has_callbacks = False  # whether callbacks of bundle finalization are pending
        self._is_fresh = True

    def begin(self) -> None:
        """Prepare for a bundle."""
        self.sampling.prepare()
        if not self._is_fresh:
            self.processor.reset()
        self._is_fresh = False


class EmbeddedBundle:
    """See ``Bundle``."""

    def __init__(
        self,
        stage: EmbeddedStage,
        name: str,
        step_names: Mapping[TransformId, str],
        steps: _Steps,
        policy: KeyPolicy,
    ) -> None:
        self._stage = stage
        self._to = policy.to
        self._sampling = steps.sampling
        self._step_names = step_names
        self._step_at_root = next(iter(step_names.values()), name)
        self._thread_name = threading.current_thread().name
        self._steps = steps
        self._processor = processor = steps.processor
        self._chunked = steps.chunked
        self._keyed = steps.keyed
        self._sampler = processor.state_sampler
        self._execution = bundle_processor.ExecutionContext(instruction_id="embedded")
        self._source = steps.source
        previous = statesampler.get_current_tracker()
        try:
            with failures_of(name):
                self._sampling.start()
                timing = Timing(policy.watermark_us, policy.to.watermark_us, policy.clock_us)
                for operation in reversed(processor.ops.values()):
                    operation.execution_context = self._execution
                    if isinstance(operation, KeyedParDo):
                        operation.use(policy)
                    with timed_by(timing):
                        operation.start()
        except BaseException:
            self.abort()
            raise
        finally:
            statesampler.set_current_tracker(previous)

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``BundleInput.push``."""
        self._source.push(values, origins)
        for operation in self._keyed:
            operation.count(len(values))

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``."""
        self.advance_key_until(MAX_US)

    def advance_key_until(self, hold_us: int) -> None:
        """See ``StoringInput.advance_key_until``."""
        to = held(self._to, hold_us)
        for operation in self._keyed:
            operation.advance_key(to)

    def fire_until(self, watermark_us: int) -> None:
        """See ``SteppedInput.fire_until``."""
        for operation in self._keyed:
            operation.fire_due(Instant(watermark_us, NEVER_US))

    def begin_key(self, key: bytes) -> None:
        """See ``StoringInput.begin_key``."""
        for operation in self._keyed:
            operation.begin_key(key)

    def restore(self, records: Sequence[bytes]) -> None:
        """See ``SettlingInput.restore``."""
        with self._entered():
            (operation,) = self._keyed
            operation.restore(records)

    def settle(self) -> Settled:
        """See ``SettlingInput.settle``."""
        with self._entered():
            (operation,) = self._keyed
            return operation.settle()

    def enter(self) -> None:
        """See ``Bundle.enter``: until another bundle enters in this thread."""
        statesampler.set_current_tracker(self._sampler)

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Do as ``enter``, within the block only."""
        previous = statesampler.get_current_tracker()
        statesampler.set_current_tracker(self._sampler)
        try:
            yield
        finally:
            statesampler.set_current_tracker(previous)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``Bundle.push_from_within``."""
        with self._entered():
            self._source.push(values, origins)

    def flush(self) -> None:
        """See ``BundleInput.flush``."""
        with self._entered():
            for operation in self._chunked:  # producers come before consumers
                operation.flush()

    def split(
        self, fraction_of_remainder: float
    ) -> Sequence[beam_fn_api_pb2.DelayedBundleApplication]:
        """See ``Bundle.split``. Only the current element can be split, since no others wait.

        Only a splittable DoFn at the root returns residuals.
        """
        with failures_of(self._step_at_root):
            split = self._source.receivers[0].try_split(fraction_of_remainder)
            if split is None:
                return ()
            _, residuals = split
            return [
                self._processor.delayed_bundle_application(operation, residual)
                for operation, residual in residuals
            ]

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return [info.SerializeToString() for info in self._processor.monitoring_infos()]

    def samples(self) -> Mapping[PCollectionId, Sequence[bytes]]:
        """See ``Bundle.samples``."""
        return {}

    def activity(self) -> Activity:
        """See ``Bundle.activity``."""
        context = self._sampler.current_state().name_context
        step = self._step_names.get(TransformId(getattr(context, "transform_id", None) or ""), "")
        return Activity(step, self._sampler.state_transition_count)

    def status(self) -> str:
        """See ``Bundle.status``."""
        return stacks(self._thread_name)

    def give_up(self, error: RunnerError) -> bool:
        """See ``Bundle.give_up``."""
        return False

    def finish(self) -> BundleResult:
        self.enter()
        try:
            for operation in self._processor.ops.values():
                operation.finish()
            deferred = tuple(
                residual_of(*residual) for _, residual in self._execution.delayed_applications
            )
            infos = tuple(info.SerializeToString() for info in self._processor.monitoring_infos())
        finally:
            self._sampling.end()
        return BundleResult(
            monitoring_infos=infos,
            deferred=deferred,
            callbacks=self._stage.take_callbacks(self._steps),
        )

    def abort(self) -> None:
        self._sampling.end()


class EmbeddedCallbacks:
    """See ``Callbacks``. Until they run or are dropped, their steps process no bundle."""

    def __init__(self, stage: EmbeddedStage, steps: _Steps) -> None:
        self._stage = stage
        self._steps = steps

    def run(self) -> None:
        """See ``Callbacks.run``."""
        try:
            self._steps.processor.finalize_bundle()
        finally:
            self._stage.take_back(self._steps)

    def drop(self) -> None:
        """See ``Callbacks.drop``."""
        self._stage.take_back(self._steps)

"""Steps that run over chunks of elements, one step at a time.

Beam's operations hand each element through all steps before they take the next:
half a microsecond per step goes into state samplers, counters and windowed values.
A ParDo that needs nothing but the element's value, and perhaps arguments that are the
same for all elements (most of them: Map, FlatMap, Filter, plain DoFns), can run over a
list of values instead, and its consumers over the list of its results.

What stays as it is: the life cycle, user metrics, element counts, sampled sizes, and
the step's name in errors. What changes is the order in which the steps see the
elements of a bundle, of which Beam says nothing.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.coders import coder_impl
from apache_beam.internal import pickler
from apache_beam.internal.util import insert_values_in_args
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operation_specs, operations
from apache_beam.transforms import core, sideinputs
from apache_beam.transforms.window import GlobalWindow, TimestampedValue, WindowFn
from apache_beam.utils.windowed_value import WindowedBatch, WindowedValue

from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.steps import AssigningWindows, OnTrial, Step, step_for

CHUNKED_PAR_DO_URN = "beam_spark_runner:chunked_par_do:v1"
CHUNKED_ASSIGN_WINDOWS_URN = "beam_spark_runner:chunked_assign_windows:v1"
CHUNKED_PRECOMBINE_URN = "beam_spark_runner:chunked_precombine:v1"

_MOST_VALUES = 128  # beyond, what a chunk costs is a few nanoseconds per value
_MOST_BYTES = 1 << 20
_SPECIAL = (WindowedValue, WindowedBatch, TimestampedValue, pvalue.TaggedOutput)


def use_chunks(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Let the operations of this module run the steps of which the proto allows it."""
    for transform in descriptor.transforms.values():
        urn = transform.spec.urn
        if urn != common_urns.primitives.PAR_DO.urn:
            transform.spec.urn = _CHUNKED.get(urn, urn)
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        if not (
            payload.state_specs
            or payload.timer_family_specs
            or payload.restriction_coder_id
            or payload.requests_finalization
        ):
            transform.spec.urn = CHUNKED_PAR_DO_URN


_CHUNKED = {
    common_urns.primitives.ASSIGN_WINDOWS.urn: CHUNKED_ASSIGN_WINDOWS_URN,
    common_urns.combine_components.COMBINE_PER_KEY_PRECOMBINE.urn: CHUNKED_PRECOMBINE_URN,
}


class ChunkEdge:
    """Where an operation's output goes, if all who read it take chunks."""

    @classmethod
    def between(
        cls, receiver: operations.ConsumerSet, readers: Iterable[operations.Operation]
    ) -> "ChunkEdge | None":
        """Return the edge; None if a reader takes single elements only."""
        readers = list(readers)
        if all(hasattr(reader, "process_chunk") for reader in readers):
            return cls(receiver, readers)
        return None

    def __init__(self, receiver: operations.ConsumerSet, readers: list[Any]) -> None:
        self._receiver = receiver
        self._readers = readers
        self._count = receiver.opcounter.element_counter

    def send(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Count the values and hand them to the readers."""
        receiver = self._receiver
        receiver.update_counters_start(origins[0].with_value(values[0]))
        for reader in self._readers:
            reader.process_chunk(values, origins)
        receiver.update_counters_finish()
        self._count.update(len(values) - 1)


class ChunkedParDo(operations.DoOperation):  # type: ignore[misc]
    """A ParDo that takes chunks from its producers and gives chunks to its consumers.

    Where the producer hands over single elements, they wait here until there are enough
    for a chunk, or until ``flush``.
    """

    def prepare(
        self,
        fn: core.DoFn,
        arguments: Callable[[], tuple[Sequence[Any], Mapping[str, Any]]],
        windowing: core.Windowing,
        input_coder: coder_impl.CoderImpl,
        output_tags: Sequence[str],
        consumers: Mapping[str, Sequence[operations.Operation]],
    ) -> None:
        """Say what ``DoOperation`` keeps to itself; before ``setup``.

        ``arguments``: side inputs among them, which can be read once a bundle has begun.
        """
        self._fn = fn
        self._arguments = arguments
        self._windowing = windowing
        self._input_coder = input_coder
        self._output_tags = output_tags
        self._consumers = consumers
        self._values: list[Any] = []
        self._origins: list[WindowedValue] = []
        self._input_limit = 1
        self._plain_kinds: set[type] = set()

    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        _unpickled.pop(id(self._fn), None)
        tagged = operations._TaggedReceivers(self.counter_factory, self.step_name)
        tagged.update(zip(self._output_tags, self.receivers, strict=True))
        main = "None" if len(self._output_tags) > 1 else self._output_tags[0]
        self._receiver = tagged[None] = tagged[main]
        self._sizes = self._receiver.opcounter.mean_byte_counter
        self._outputs = common._OutputHandler(
            self._windowing.windowfn, self._receiver, tagged, None, None, False, False
        )
        self._edge = ChunkEdge.between(self._receiver, self._consumers.get(main, ()))
        self._step: Step | None = None

    def process(self, element: WindowedValue) -> None:
        self._values.append(element.value)
        self._origins.append(element)
        if len(self._values) >= self._input_limit:
            self.flush()

    def flush(self) -> None:
        """Process what waits here."""
        values, origins = self._values, self._origins
        if not values:
            return
        self._values, self._origins = [], []
        size, _ = self._input_coder.get_estimated_size_and_observables(origins[-1])
        self._input_limit = _grown(self._input_limit, size)
        self.process_chunk(values, origins)

    def finish(self) -> None:
        self.flush()
        super().finish()

    def process_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process values; each has the timestamp, windows and pane of its origin."""
        with self.scoped_process_state:
            try:
                step = self._step or self._first_step()
                for results, their_origins in step.pieces(values, origins):
                    self._pass_on(step, results, their_origins)
            except BaseException as error:
                _charge(error, self.step_name)
                raise

        if isinstance(step, OnTrial) and step.is_over():
            self._step = step.then

    def _first_step(self) -> Step:
        """Choose the loop. As with Beam's harness, later bundles see the same side inputs."""
        step: Step = (
            AssigningWindows(self._fn.window_fn)
            if isinstance(self._fn, _WindowInto)
            else step_for(self._fn, self.step_name, *self._arguments())
        )
        self._step = step
        return step

    def _pass_on(self, step: Step, results: list[Any], origins: list[WindowedValue]) -> None:
        kinds = set(map(type, results))
        if not kinds <= self._plain_kinds:
            if any(issubclass(kind, _SPECIAL) for kind in kinds):
                for result, origin in zip(results, origins, strict=True):
                    self._outputs.handle_process_outputs(origin, (result,))
                return
            self._plain_kinds |= kinds
        if self._edge is not None:
            self._edge.send(results, origins)
        else:
            receive = self._receiver.receive
            for result, origin in zip(results, origins, strict=True):
                receive(origin.with_value(result))
        _, total, count, _, _ = self._sizes.value()
        step.limit = _grown(step.limit, total / max(count, 1))


class ChunkedPrecombine(operations.PGBKCVOperation):  # type: ignore[misc]
    """The part of a lifted combiner before the shuffle: accumulators by key."""

    def process_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``ChunkedParDo.process_chunk``."""
        add = self.add_key_value
        with self.scoped_process_state:
            try:
                if self.is_default_windowing:
                    for key, value in values:
                        add(key, value, None)
                    return
                for (key, value), origin in zip(values, origins, strict=True):
                    timestamp = origin.timestamp if self.timestamp_combiner else None
                    for window in origin.windows:
                        add((window, key), value, timestamp)
            except BaseException as error:
                _charge(error, self.step_name)
                raise


def _charge(error: BaseException, step_name: str) -> None:
    """Raise what names the step, unless the error is charged to one already."""
    if not getattr(error, "_tagged_with_step", False):
        raise failure_of(error, step_name) from error


def _grown(limit: int, size: float) -> int:
    return max(1, min(2 * limit, _MOST_VALUES, int(_MOST_BYTES / (size + 1))))


class _Unpickled:
    """Pickles as a reference, so that Beam's operation gets the very DoFn that runs here."""

    def __init__(self, key: int) -> None:
        self._key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._key,)


_unpickled: dict[int, tuple[Any, ...]] = {}


def _unpickle(key: int) -> tuple[Any, ...]:
    return _unpickled[key]


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    CHUNKED_PAR_DO_URN, beam_runner_api_pb2.ParDoPayload
)
def _create_par_do(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
    consumers: dict[str, list[operations.Operation]],
) -> operations.DoOperation:
    create = functools.partial(
        bundle_processor._create_pardo_operation, factory, transform_id, transform, consumers
    )
    info = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context)
    pickled = info.serialized_dofn_data()
    fn, args, kwargs, side_inputs, windowing = pickler.loads(pickled)
    process = common.MethodWrapper(fn, "process")
    if (
        side_inputs  # from before the Fn API
        or not all(map(_is_the_same_for_all, payload.side_inputs.values()))
        or process.defaults  # parameters that Beam fills in
        or fn._process_batch_defined
        or getattr(process.method_value, "_beam_yields_batches", False)
    ):
        return create(pickled, payload)
    if windowing is None:
        windowing = factory.context.windowing_strategies.get_by_id(
            factory.descriptor.pcollections[_main(transform, payload)].windowing_strategy_id
        )
    data = fn, args, kwargs, side_inputs, windowing
    views = _views(factory, transform_id, transform, payload)
    return _create_chunked(create, factory, transform, data, payload, consumers, views)


def _main(
    transform: beam_runner_api_pb2.PTransform, payload: beam_runner_api_pb2.ParDoPayload | None
) -> str:
    sides = () if payload is None else payload.side_inputs
    (collection,) = (transform.inputs[name] for name in transform.inputs if name not in sides)
    return str(collection)


def _is_the_same_for_all(side_input: beam_runner_api_pb2.SideInput) -> bool:
    """Whether all elements see one view, whatever their windows: it is in the global window."""
    mapping = pickler.loads(side_input.window_mapping_fn.payload)
    return mapping is sideinputs._global_window_mapping_fn


def _views(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
) -> list[bundle_processor.StateBackedSideInputMap]:
    """Return what Beam's operation has, and keeps to itself: the side inputs, in order."""
    coders = factory.get_input_coders(transform)
    return [
        bundle_processor.StateBackedSideInputMap(
            factory.state_handler,
            transform_id,
            tag,
            pvalue.SideInputData.from_runner_api(payload.side_inputs[tag], factory.context),
            coders[tag],
        )
        for tag in sorted(payload.side_inputs, key=sideinputs.get_sideinput_index)
    ]


def _create_chunked(
    create: Callable[..., Any],
    factory: Any,
    transform: beam_runner_api_pb2.PTransform,
    data: tuple[Any, ...],
    payload: beam_runner_api_pb2.ParDoPayload | None,
    consumers: dict[str, list[operations.Operation]],
    views: Sequence[bundle_processor.StateBackedSideInputMap] = (),
) -> ChunkedParDo:
    fn, args, kwargs, _, windowing = data

    def arguments() -> tuple[Sequence[Any], Mapping[str, Any]]:
        found = insert_values_in_args(args, kwargs, [view[GlobalWindow()] for view in views])
        return cast("tuple[Sequence[Any], Mapping[str, Any]]", found)

    _unpickled[id(fn)] = data
    operation: ChunkedParDo = create(
        pickler.dumps(_Unpickled(id(fn))), payload, operation_cls=ChunkedParDo
    )
    operation.prepare(
        fn,
        arguments,
        windowing,
        factory.get_windowed_coder(_main(transform, payload)).get_impl(),
        list(transform.outputs),
        consumers,
    )
    return operation


class _WindowInto(beam.DoFn):  # type: ignore[misc]
    """Stands for the step in Beam's operation; ``AssigningWindows`` does its work."""

    def __init__(self, window_fn: WindowFn) -> None:
        self.window_fn = window_fn

    def process(self, element: Any) -> Iterator[Any]:
        yield from ()


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    CHUNKED_ASSIGN_WINDOWS_URN, beam_runner_api_pb2.WindowingStrategy
)
def _create_assign_windows(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.WindowingStrategy,
    consumers: dict[str, list[operations.Operation]],
) -> operations.DoOperation:
    create = functools.partial(
        bundle_processor._create_pardo_operation, factory, transform_id, transform, consumers
    )
    windowing = core.Windowing.from_runner_api(payload, factory.context)
    data: tuple[Any, ...] = _WindowInto(windowing.windowfn), (), {}, [], windowing
    return _create_chunked(create, factory, transform, data, None, consumers)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    CHUNKED_PRECOMBINE_URN, beam_runner_api_pb2.CombinePayload
)
def _create_precombine(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.CombinePayload,
    consumers: dict[str, list[operations.Operation]],
) -> operations.PGBKCVOperation:
    combine_fn = core.CombineFn.from_runner_api(payload.combine_fn, factory.context)
    operation = ChunkedPrecombine(
        common.NameContext(transform.unique_name, transform_id),
        operation_specs.WorkerPartialGroupByKey(
            pickler.dumps((combine_fn, [], {})), None, [factory.get_only_output_coder(transform)]
        ),
        factory.counter_factory,
        factory.state_sampler,
        factory.get_input_windowing(transform),
    )
    return factory.augment_oldstyle_op(operation, transform.unique_name, consumers)

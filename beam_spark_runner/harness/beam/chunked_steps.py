"""Decides which steps of a stage process chunks, and creates their operations."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from apache_beam import pvalue
from apache_beam.internal import pickler
from apache_beam.internal.util import insert_values_in_args
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners import common
from apache_beam.runners.worker import bundle_processor, operation_specs, operations
from apache_beam.transforms import core, sideinputs, userstate
from apache_beam.transforms.combiners import PhasedCombineFnExecutor
from apache_beam.transforms.window import GlobalWindow
from typing_extensions import override

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.harness.beam.chunks import (
    ChunkedCombine,
    ChunkedParDo,
    ChunkedPrecombine,
    WindowInto,
    main_tag,
)
from beam_spark_runner.harness.beam.held_open import constants_wait_for, let_pass
from beam_spark_runner.harness.beam.partition_steps import PartitionParDo, takes_partition
from beam_spark_runner.harness.beam.step_choice import Arguments, is_known
from beam_spark_runner.harness.values.constants import makes_new_lists

PAR_DO_URN = "beam_spark_runner:par_do:v1"
CHUNKED_PAR_DO_URN = "beam_spark_runner:chunked_par_do:v1"
CHUNKED_ASSIGN_WINDOWS_URN = "beam_spark_runner:chunked_assign_windows:v1"
CHUNKED_PRECOMBINE_URN = "beam_spark_runner:chunked_precombine:v1"
CHUNKED_RESTRICTIONS_URN = "beam_spark_runner:chunked_restrictions:v1"
MERGE_URN = "beam_spark_runner:combine_merge:v1"


def use_chunks(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, step_chunks: StepChunks = "auto"
) -> None:
    """Make the operations of this module run those steps whose proto allows it.

    With ``off``, all steps are Beam's own operations, except for functions over a partition, which
    Beam's operations give no side inputs if the partition is empty.
    """
    is_off = step_chunks == "off"
    for transform in descriptor.transforms.values():
        urn = transform.spec.urn
        if urn != common_urns.primitives.PAR_DO.urn:
            transform.spec.urn = (_ONE_BY_ONE if is_off else _CHUNKED).get(urn, urn)
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        if payload.state_specs or payload.timer_family_specs or payload.restriction_coder_id:
            continue
        is_beams = is_off or payload.requests_finalization
        transform.spec.urn = PAR_DO_URN if is_beams else CHUNKED_PAR_DO_URN


_COMBINE_PHASES = {
    common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn: "merge",
    common_urns.combine_components.COMBINE_PER_KEY_EXTRACT_OUTPUTS.urn: "extract",
    common_urns.combine_components.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS.urn: "convert",
    common_urns.combine_components.COMBINE_GROUPED_VALUES.urn: "all",
}


def _chunked_combine_urn(phase: str) -> str:
    return f"beam_spark_runner:chunked_combine_{phase}:v1"


_CHUNKED = {
    **{urn: _chunked_combine_urn(phase) for urn, phase in _COMBINE_PHASES.items()},
    common_urns.primitives.ASSIGN_WINDOWS.urn: CHUNKED_ASSIGN_WINDOWS_URN,
    common_urns.combine_components.COMBINE_PER_KEY_PRECOMBINE.urn: CHUNKED_PRECOMBINE_URN,
    urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS: CHUNKED_RESTRICTIONS_URN,
}
_ONE_BY_ONE = {common_urns.combine_components.COMBINE_PER_KEY_MERGE_ACCUMULATORS.urn: MERGE_URN}


class Unpickled:
    """A DoFn with its arguments, already unpickled to choose how the step runs.

    Beam's ``_create_pardo_operation`` takes bytes and unpickles them. So this object pickles as a
    number, by which Beam gets the same DoFn: unpickling the DoFn again would take time, and make a
    second instance.
    """

    def __init__(self, data: tuple[Any, ...]) -> None:
        self.data = data
        self._number = next(_numbers)
        _unpickled[self._number] = self

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._number,)


_numbers = itertools.count()
_unpickled: WeakValueDictionary[int, Unpickled] = WeakValueDictionary()


def _unpickle(number: int) -> tuple[Any, ...]:
    return _unpickled[number].data


def _create_par_do(
    may_take_chunks: bool,
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
    check_declared(fn, payload)
    let_pass(factory, transform, fn)
    process = common.MethodWrapper(fn, "process")
    is_partition = takes_partition(fn)
    if not is_partition and (
        not may_take_chunks
        or side_inputs  # from before the Fn API
        or main_tag(list(transform.outputs)) not in transform.outputs  # as of packed combiners
        or not all(map(_is_the_same_for_all, payload.side_inputs.values()))
        or not all(map(is_known, process.defaults))
        or fn._process_batch_defined
        or getattr(process.method_value, "_beam_yields_batches", False)
    ):
        return create(pickled, payload)
    if windowing is None:
        windowing = factory.context.windowing_strategies.get_by_id(
            factory.descriptor.pcollections[main_input(transform, payload)].windowing_strategy_id
        )
    data = fn, args, kwargs, side_inputs, windowing
    views = views_of(factory, transform_id, transform, payload)
    kind = PartitionParDo if is_partition else ChunkedParDo
    operation = _create_chunked(create, factory, transform, data, payload, consumers, views, kind)
    constants_wait_for(factory, transform_id, operation)
    return operation


for _urn, _may_take_chunks in ((PAR_DO_URN, False), (CHUNKED_PAR_DO_URN, True)):
    bundle_processor.BeamTransformFactory.register_urn(_urn, beam_runner_api_pb2.ParDoPayload)(
        functools.partial(_create_par_do, _may_take_chunks)
    )


def check_declared(fn: core.DoFn, payload: beam_runner_api_pb2.ParDoPayload) -> None:
    """Check that the proto declares the states and timers that a DoFn uses.

    Raises:
        FnApiProtocolError: It does not, so that elements may not even arrive key by key.
    """
    for kind, specs, declarations in zip(
        ("state", "timer"),
        userstate.get_dofn_specs(fn),
        (payload.state_specs, payload.timer_family_specs),
        strict=True,
    ):
        for spec in specs:
            if spec.name not in declarations:
                name = spec.name.removeprefix(userstate.TimerSpec.prefix)
                raise FnApiProtocolError(
                    f"the DoFn asks for the {kind} {name!r}, which its proto does not declare"
                )


def main_input(
    transform: beam_runner_api_pb2.PTransform, payload: beam_runner_api_pb2.ParDoPayload | None
) -> str:
    """Return the id of the step's main input; its other inputs are side inputs."""
    sides = () if payload is None else payload.side_inputs
    (collection,) = (transform.inputs[name] for name in transform.inputs if name not in sides)
    return str(collection)


def _is_the_same_for_all(side_input: beam_runner_api_pb2.SideInput) -> bool:
    """Whether all elements see one view, because the window mapping fn is the global one."""
    mapping = pickler.loads(side_input.window_mapping_fn.payload)
    return mapping is sideinputs._global_window_mapping_fn


def views_of(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
) -> list[bundle_processor.StateBackedSideInputMap]:
    """Make the side inputs of a step, in order, as Beam's operation does."""
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
    kind: type[ChunkedParDo] = ChunkedParDo,
) -> ChunkedParDo:
    unpickled = Unpickled(data)  # lives as long as the operation, which may be set up again
    fn, *_, windowing = data

    def arguments() -> Arguments:
        _, args, kwargs, *_ = unpickled.data
        side_inputs = [view[GlobalWindow()] for view in views]
        args, kwargs = insert_values_in_args(args, kwargs, side_inputs)
        return Arguments(args, kwargs, side_inputs)

    operation: ChunkedParDo = create(pickler.dumps(unpickled), payload, operation_cls=kind)
    operation.prepare(
        fn,
        arguments,
        windowing,
        factory.get_windowed_coder(main_input(transform, payload)).get_impl(),
        list(transform.outputs),
        consumers,
    )
    return operation


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
    data: tuple[Any, ...] = WindowInto(windowing.windowfn), (), {}, [], windowing
    operation = _create_chunked(create, factory, transform, data, None, consumers)
    constants_wait_for(factory, transform_id, operation)
    return operation


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
    coder = factory.get_only_output_coder(transform)
    operation = ChunkedPrecombine(
        common.NameContext(transform.unique_name, transform_id),
        operation_specs.WorkerPartialGroupByKey(pickler.dumps((combine_fn, [], {})), None, [coder]),
        factory.counter_factory,
        factory.state_sampler,
        factory.get_input_windowing(transform),
    )
    pairs = coder.wrapped_value_coder
    operation.prepare(pairs.key_coder(), pairs.value_coder().get_impl(), consumers)
    operation.users_fn = combine_fn
    return factory.augment_oldstyle_op(operation, transform.unique_name, consumers)


def _create_combine(
    phase: str,
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.CombinePayload,
    consumers: dict[str, list[operations.Operation]],
) -> operations.CombineOperation:
    combine_fn = core.CombineFn.from_runner_api(payload.combine_fn, factory.context)
    operation = _combining(ChunkedCombine, phase, combine_fn, factory, transform_id, transform)
    operation.prepare(
        _merging(combine_fn)
        if phase == "merge"
        else PhasedCombineFnExecutor(phase, combine_fn, [], {}).apply,
        consumers,
        makes_lists=phase == "merge" and makes_new_lists(combine_fn),
    )
    operation.users_fn = combine_fn
    return factory.augment_oldstyle_op(operation, transform.unique_name, consumers)


@bundle_processor.BeamTransformFactory.register_urn(  # type: ignore[untyped-decorator]
    MERGE_URN, beam_runner_api_pb2.CombinePayload
)
def _create_merge(
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.CombinePayload,
    consumers: dict[str, list[operations.Operation]],
) -> operations.CombineOperation:
    """Create Beam's operation, for panes that may be empty."""
    combine_fn = core.CombineFn.from_runner_api(payload.combine_fn, factory.context)
    combine_fn.merge_accumulators = _merging(combine_fn)
    kind = operations.CombineOperation
    operation = _combining(kind, "merge", combine_fn, factory, transform_id, transform)
    return factory.augment_oldstyle_op(operation, transform.unique_name, consumers)


def _combining(
    kind: type[Any],
    phase: str,
    combine_fn: core.CombineFn,
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
) -> Any:
    """Return an operation of a kind of ``CombineOperation``."""
    unpickled = Unpickled((combine_fn, [], {}))  # until the operation has it
    return kind(
        common.NameContext(transform.unique_name, transform_id),
        operation_specs.WorkerCombineFn(
            pickler.dumps(unpickled), phase, None, [factory.get_only_output_coder(transform)]
        ),
        factory.counter_factory,
        factory.state_sampler,
    )


def _merging(combine_fn: core.CombineFn) -> Callable[[Iterable[Any]], Any]:
    """Return a merge function for panes that may be empty, which CombineFns need not support."""
    merge, create = combine_fn.merge_accumulators, combine_fn.create_accumulator

    def merge_or_create(accumulators: Iterable[Any]) -> Any:
        for _ in accumulators:
            return merge(accumulators)
        return create()

    return merge_or_create


for _phase in _COMBINE_PHASES.values():
    bundle_processor.BeamTransformFactory.register_urn(
        _chunked_combine_urn(_phase), beam_runner_api_pb2.CombinePayload
    )(functools.partial(_create_combine, _phase))

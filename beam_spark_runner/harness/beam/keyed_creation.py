"""Creates the operations of steps that have state or timers."""

from collections.abc import Callable
from typing import Any

from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.transforms import core

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.beam.chunked_steps import (
    Unpickled,
    check_declared,
    main_input,
    views_of,
)
from beam_spark_runner.harness.beam.declarative import DeclarativeParDo, is_declarative
from beam_spark_runner.harness.beam.held_open import let_pass
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.beam.keyed import KEYED_PAR_DO_URN, KeyedParDo
from beam_spark_runner.harness.beam.keyed_call import KeyedCall, can_call
from beam_spark_runner.harness.beam.state_handler import EmbeddedStateHandler


def use_keys(descriptor: beam_fn_api_pb2.ProcessBundleDescriptor) -> None:
    """Make the operations of ``keyed`` run the steps that have state or timers."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn != common_urns.primitives.PAR_DO.urn:
            continue
        payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
        if payload.state_specs or payload.timer_family_specs:
            transform.spec.urn = KEYED_PAR_DO_URN


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
    collection = main_input(transform, payload)
    coder = factory.get_windowed_coder(collection)
    strategy_id = factory.descriptor.pcollections[collection].windowing_strategy_id
    lateness_ms = factory.descriptor.windowing_strategies[strategy_id].allowed_lateness
    states = KeyStates(
        _state_handler_for(factory),
        transform_id,
        coder.key_coder(),
        coder.window_coder,
        allowed_lateness_us=lateness_ms * 1000,
    )
    info = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context)
    fn, args, kwargs, sides, windowing = pickler.loads(info.serialized_dofn_data())
    check_declared(fn, payload)
    let_pass(factory, transform, fn)
    if windowing is None:
        windowing = factory.context.windowing_strategies.get_by_id(strategy_id)
    calls_it = can_call(fn)
    unpickled = Unpickled((fn, args, kwargs, sides, windowing))
    views = views_of(factory, transform_id, transform, payload)
    kind = DeclarativeParDo if calls_it and is_declarative(fn) else KeyedParDo

    def make_call(on_window: Callable[..., None] | None) -> KeyedCall:
        fn, args, kwargs, *_ = unpickled.data
        return KeyedCall(fn, args, kwargs, views, states, on_window)

    def create(*arguments: Any) -> KeyedParDo:
        *others, _ = arguments  # Beam's own context
        return kind(*others, states)

    operation: KeyedParDo = bundle_processor._create_pardo_operation(
        factory,
        transform_id,
        transform,
        consumers,
        pickler.dumps(unpickled) if calls_it else info.serialized_dofn_data(),
        payload,
        operation_cls=create,
    )
    operation.prepare(
        states,
        make_call if calls_it else None,
        windowing,
        list(transform.outputs),
        payload.on_window_expiration_timer_family_spec,
        may_interrupt=getattr(fn, "use_splittable_timers", True),
    )
    if isinstance(operation, DeclarativeParDo):
        operation.prepare_declarative(fn, coder)
    return operation


def _state_handler_for(factory: Any) -> EmbeddedStateHandler:
    """Return the handler of state requests in this process, even if side inputs are remote."""
    handler = factory.state_handler
    if isinstance(handler, EmbeddedStateHandler):
        return handler
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
    descriptor.CopyFrom(factory.descriptor)
    for transform in descriptor.transforms.values():
        if transform.spec.urn == KEYED_PAR_DO_URN:
            transform.spec.urn = common_urns.primitives.PAR_DO.urn
    names = {
        TransformId(id_): transform.unique_name for id_, transform in descriptor.transforms.items()
    }
    return EmbeddedStateHandler(descriptor, names)

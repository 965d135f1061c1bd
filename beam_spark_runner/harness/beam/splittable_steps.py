"""Splittable DoFns: errors name their steps, windows come from a cache, results go in chunks.

A DoFn of this package whose class has the attribute ``send_new_results`` gets a function there when
it is set up. While it processes a restriction in one window, it may call this function with a list
of values to which nothing else refers, rather than yield these one by one. The values are sent with
the restriction's timestamp, or as a second list of the same values with timestamps and windows
says. The watermark estimator does not observe such timestamps.
"""

import functools
from collections.abc import Sequence
from typing import Any

from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.worker import bundle_processor, operations
from apache_beam.transforms import core
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core import urns
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.harness.beam.chunk_edge import ChunkEdge
from beam_spark_runner.harness.beam.chunked_steps import CHUNKED_RESTRICTIONS_URN, Unpickled
from beam_spark_runner.harness.beam.chunks import main_tag
from beam_spark_runner.harness.beam.grouped_reads import GroupedReads, is_reader
from beam_spark_runner.harness.beam.held_open import let_pass
from beam_spark_runner.harness.beam.window_assignment import Assignment
from beam_spark_runner.harness.bundle import Residual
from beam_spark_runner.harness.failures import charge, failure_of, note_element
from beam_spark_runner.harness.values.constants import Kind


class ChargedRestrictions(operations.SdfProcessSizedElements):  # type: ignore[misc]
    """Beam's operation of a splittable DoFn, whose errors name the step and the element."""

    takes_chunks = False

    def __init__(self, name: Any, spec: Any, *others: Any, **more: Any) -> None:
        fn, args, kwargs, side_inputs, windowing = pickler.loads(spec.serialized_fn)
        if self.takes_chunks and is_reader(fn):
            fn = GroupedReads(fn)
        # Beam calls the window fn for each ``TimestampedValue``, which takes more time than the
        # rest of what it does with one.
        windowing.windowfn = Assignment(windowing.windowfn)
        unpickled = Unpickled((fn, args, kwargs, side_inputs, windowing))
        super().__init__(
            name, spec._replace(serialized_fn=pickler.dumps(unpickled)), *others, **more
        )
        self._unpickled = unpickled  # lives as long as the operation, which may be set up again
        self._fn = fn
        self.readers: Sequence[operations.Operation] = ()  # of the main output

    @override
    def setup(self, data_sampler: Any = None) -> None:
        super().setup(data_sampler)
        if hasattr(type(self._fn), "send_new_results"):
            main = self.spec.output_tags.index(main_tag(self.spec.output_tags))
            self._edge = ChunkEdge(self.receivers[main], self.readers)
            self._fn.send_new_results = self._send

    def _send(self, values: list[Any], windowed: list[WindowedValue] | None = None) -> None:
        try:
            self._edge.send(values, windowed or [self._origin] * len(values), Kind.OWN)
        except StopIteration as error:  # it would end the generator that has called
            raise failure_of(error, self.step_name) from error

    @override
    def process(self, restriction: WindowedValue) -> None:
        self._origin = restriction
        try:
            super().process(restriction)
        except BaseException as error:  # user code may call sys.exit
            (element, _), _ = restriction.value
            note_element(error, element)
            charge(error, self.step_name)
            raise


class ChunkedRestrictions(ChargedRestrictions):
    """The operation of a splittable DoFn whose results may go in chunks, if Beam has written it."""

    takes_chunks = True


def charge_errors_of_restrictions() -> None:
    """Have every ``BeamTransformFactory`` of this process make ``ChargedRestrictions``."""
    for urn, kind in (
        (urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS, ChargedRestrictions),
        (CHUNKED_RESTRICTIONS_URN, ChunkedRestrictions),
    ):
        bundle_processor.BeamTransformFactory.register_urn(urn, beam_runner_api_pb2.ParDoPayload)(
            functools.partial(_create, kind)
        )


def _create(
    kind: type[ChargedRestrictions],
    factory: Any,
    transform_id: str,
    transform: beam_runner_api_pb2.PTransform,
    payload: beam_runner_api_pb2.ParDoPayload,
    consumers: dict[str, list[operations.Operation]],
) -> Any:
    info = core.DoFnInfo.from_runner_api(payload.do_fn, factory.context)
    operation = bundle_processor._create_pardo_operation(
        factory,
        transform_id,
        transform,
        consumers,
        info.serialized_dofn_data(),
        payload,
        operation_cls=kind,
    )
    let_pass(factory, transform, operation._fn)
    operation.readers = consumers.get(main_tag(operation.spec.output_tags), ())
    return operation


def residual_of(element: WindowedValue, watermark: Timestamp | None, delay: Any) -> Residual:
    """Return a residual of Beam's as a ``Residual``, without encoding it.

    Args:
        element: The sized restriction.
        watermark: The output watermark; None: unknown.
        delay: The requested delay, a Duration; None: none.

    Source: ``BundleProcessor.delayed_bundle_application``.
    """
    delay_us = 0 if delay is None else max(0, delay.micros)
    return Residual(element, delay_us, MIN_US if watermark is None else watermark.micros)

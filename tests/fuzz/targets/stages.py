"""Stages that were recorded, and what SDK harnesses have answered about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.harness.beam.plugin import block_edges
from beam_spark_runner.harness.remote.key_timers import declared_timers
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from tests.fuzz.targets.base import Messages

_SOURCES = (
    urns.GRPC_SOURCE,
    block_edges.MARKING_SOURCE_URN,
    block_edges.BLOCK_SOURCE_URN,
    block_edges.KEYED_SOURCE_URN,
)
_SINKS = (urns.GRPC_SINK, block_edges.BLOCK_SINK_URN)


@dataclass(frozen=True)
class Stage:
    """A recorded stage.

    Attributes:
        number: Its number in ``Messages.stages``.
        descriptor: Its descriptor.
        responses: What harnesses have answered about its bundles.
        elements: What they have sent.
        requests: The state that they have asked for.
    """

    number: int
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor
    responses: Sequence[beam_fn_api_pb2.InstructionResponse] = ()
    elements: Sequence[beam_fn_api_pb2.Elements] = ()
    requests: Sequence[beam_fn_api_pb2.StateRequest] = ()

    @cached_property
    def sinks(self) -> dict[TransformId, PCollectionId]:
        return {
            TransformId(id_): PCollectionId(next(iter(each.inputs.values())))
            for id_, each in self.descriptor.transforms.items()
            if each.spec.urn in _SINKS
        }

    @cached_property
    def source(self) -> TransformId:
        return next(
            TransformId(id_)
            for id_, each in self.descriptor.transforms.items()
            if each.spec.urn in _SOURCES
        )

    @cached_property
    def families(self) -> list[tuple[str, str]]:
        """Transform and name of each timer family that the runner awaits."""
        declared = declared_timers(self.descriptor, self.coder(self.source))
        return [(each.transform, each.family) for each in declared.families]

    @cached_property
    def is_splittable(self) -> bool:
        return any(
            each.spec.urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS
            for each in self.descriptor.transforms.values()
        )

    @cached_property
    def description(self) -> StageDescription:
        """The description of which the descriptor was made."""
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
        descriptor.CopyFrom(self.descriptor)
        for each in descriptor.transforms.values():
            if each.spec.urn in _SOURCES:
                each.spec.urn = urns.GRPC_SOURCE
            elif each.spec.urn in _SINKS:
                each.spec.urn = urns.GRPC_SINK
        return StageDescription(
            coded_descriptor=descriptor.SerializeToString(deterministic=True),
            source=self.source,
            sinks=self.sinks,
            step_names={
                TransformId(id_): each.unique_name for id_, each in descriptor.transforms.items()
            },
            has_timers=bool(descriptor.timer_api_service_descriptor.url),
            is_splittable=self.is_splittable,
        )

    def coder(self, edge: TransformId) -> WindowedValueCoder:
        """Return the coder of a source or sink, as the runner sees it."""
        payload = self.descriptor.transforms[edge].spec.payload
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(payload)
        return coder_seen_by_the_runner(self.descriptor, port.coder_id)

    def data(self, sink: str) -> list[bytes]:
        """Return the blocks of a sink that were recorded."""
        found = [each for elements in self.elements for each in elements.data]
        return [each.data for each in found if each.transform_id == sink and each.data]

    def timers(self, transform: str, family: str) -> list[bytes]:
        """Return the blocks of timers of a family that were recorded."""
        return [
            each.timers
            for elements in self.elements
            for each in elements.timers
            if (each.transform_id, each.timer_family_id) == (transform, family) and each.timers
        ]


def stages_of(messages: Messages) -> list[Stage]:
    """Return all stages that were recorded."""
    stages = [
        Stage(number, beam_fn_api_pb2.ProcessBundleDescriptor.FromString(each))
        for number, each in enumerate(messages.stages)
    ]
    responses = messages.of(beam_fn_api_pb2.InstructionResponse)
    elements = messages.of(beam_fn_api_pb2.Elements)
    requests = messages.of(beam_fn_api_pb2.StateRequest)
    return [
        replace(
            stage,
            responses=[each for number, each in responses if number == stage.number],
            elements=[each for number, each in elements if number == stage.number],
            requests=[each for number, each in requests if number == stage.number],
        )
        for stage in stages
    ]

"""A stage as it is sent to executors: a ProcessBundleDescriptor and related ids and names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDescription:
    """A stage as it is sent to executors: bytes and strings only, so that it pickles cheaply.

    ``coded_descriptor`` depends on the plan alone (maps are serialised in the order of their
    keys), so that its hash can be used as its id.
    """

    coded_descriptor: bytes  # ProcessBundleDescriptor
    source: TransformId
    sinks: Mapping[TransformId, PCollectionId] = field(default_factory=dict)
    step_names: Mapping[TransformId, str] = field(default_factory=dict)  # id -> unique_name
    coded_environment: bytes = b""  # Environment proto of an SDK harness; empty: in this process

    has_states: bool = False
    has_timers: bool = False
    is_splittable: bool = False  # its first transform processes restrictions, with residuals

    def descriptor(self, url: str = "") -> beam_fn_api_pb2.ProcessBundleDescriptor:
        """Decode the descriptor, each time as a new message, since Beam changes it.

        Args:
            url: The address of the Fn API's services; empty for a stage that runs in this process.
        """
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(self.coded_descriptor)
        if url:
            _give_addresses(descriptor, url, has_timers=self.has_timers)
        return descriptor


def _give_addresses(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, url: str, *, has_timers: bool
) -> None:
    """Set the addresses of the services for data, timers and state in a descriptor."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn in (urns.GRPC_SOURCE, urns.GRPC_SINK):
            port = beam_fn_api_pb2.RemoteGrpcPort.FromString(transform.spec.payload)
            port.api_service_descriptor.url = url
            transform.spec.payload = port.SerializeToString(deterministic=True)
    descriptor.state_api_service_descriptor.url = url
    if has_timers:
        descriptor.timer_api_service_descriptor.url = url

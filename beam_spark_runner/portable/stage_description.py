"""A stage as it travels to executors: a ProcessBundleDescriptor, and the runner's names in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDescription:
    """A stage, ready to travel to an executor: bytes and strings only, so it pickles cheaply.

    ``coded_descriptor`` depends on the plan alone (maps are written in the order of their
    keys), so that its hash may name it.
    """

    coded_descriptor: bytes  # ProcessBundleDescriptor
    source: TransformId
    sinks: Mapping[TransformId, PCollectionId] = field(default_factory=dict)
    step_names: Mapping[TransformId, str] = field(default_factory=dict)  # id -> unique_name
    coded_environment: bytes = b""  # Environment proto of an SDK harness; empty: in this process

    has_states: bool = False
    has_timers: bool = False
    is_splittable: bool = False  # its root processes restrictions, and may leave some for later

    def descriptor(self, url: str = "") -> beam_fn_api_pb2.ProcessBundleDescriptor:
        """Decode the descriptor: a fresh message each time, since Beam writes into its own.

        Args:
            url: where the Fn API is served; empty for a stage that runs in this process.
        """
        descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(self.coded_descriptor)
        if url:
            _give_addresses(descriptor, url, has_timers=self.has_timers)
        return descriptor


def _give_addresses(
    descriptor: beam_fn_api_pb2.ProcessBundleDescriptor, url: str, *, has_timers: bool
) -> None:
    """Write into a descriptor where data, timers and state are served."""
    for transform in descriptor.transforms.values():
        if transform.spec.urn in (urns.GRPC_SOURCE, urns.GRPC_SINK):
            port = beam_fn_api_pb2.RemoteGrpcPort.FromString(transform.spec.payload)
            port.api_service_descriptor.url = url
            transform.spec.payload = port.SerializeToString(deterministic=True)
    descriptor.state_api_service_descriptor.url = url
    if has_timers:
        descriptor.timer_api_service_descriptor.url = url

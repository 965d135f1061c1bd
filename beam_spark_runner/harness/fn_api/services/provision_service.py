"""The provisioning service, for harnesses that are started with no more than its address."""

from collections.abc import Callable
from typing import Any

from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc


class ProvisionService(beam_provision_api_pb2_grpc.ProvisionServiceServicer):  # type: ignore[misc]
    """The gRPC servicer. ``provision_of`` finds the ProvisionInfo of the calling harness."""

    def __init__(self, provision_of: Callable[[Any], beam_provision_api_pb2.ProvisionInfo]) -> None:
        self._provision_of = provision_of

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        """Return pipeline options, endpoints and dependencies."""
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self._provision_of(context))

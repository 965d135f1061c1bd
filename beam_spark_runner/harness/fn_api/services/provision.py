"""The provisioning service: what a harness that is started by an address must know."""

from collections.abc import Callable
from typing import Any, Protocol

from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc


class _Connection(Protocol):
    @property
    def provision(self) -> beam_provision_api_pb2.ProvisionInfo: ...


class ProvisionService(beam_provision_api_pb2_grpc.ProvisionServiceServicer):  # type: ignore[misc]
    """The gRPC side. ``connection_of`` finds who calls."""

    def __init__(self, connection_of: Callable[[Any], _Connection]) -> None:
        self._connection_of = connection_of

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        """Return options, addresses and dependencies."""
        return beam_provision_api_pb2.GetProvisionInfoResponse(
            info=self._connection_of(context).provision
        )

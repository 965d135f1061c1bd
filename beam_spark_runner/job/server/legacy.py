"""The artifact services that SDKs used before Beam 2.25: each call fails, and names the new one."""

from collections.abc import Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_artifact_api_pb2_grpc

_REFUSAL = (
    "the legacy artifact services are not served; stage files by ReverseArtifactRetrievalService "
    "of ArtifactStagingService, as SDKs do since Beam 2.25"
)


class LegacyStagingService(
    beam_artifact_api_pb2_grpc.LegacyArtifactStagingServiceServicer  # type: ignore[misc]
):
    """Refuses all calls as UNIMPLEMENTED."""

    def PutArtifact(self, request: Any, context: Any) -> Any:
        """Refuse the call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, _REFUSAL)

    def CommitManifest(self, request: Any, context: Any) -> Any:
        """Refuse the call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, _REFUSAL)


class LegacyRetrievalService(
    beam_artifact_api_pb2_grpc.LegacyArtifactRetrievalServiceServicer  # type: ignore[misc]
):
    """Refuses all calls as UNIMPLEMENTED."""

    def GetManifest(self, request: Any, context: Any) -> Any:
        """Refuse the call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, _REFUSAL)

    def GetArtifact(self, request: Any, context: Any) -> Iterator[Any]:
        """Refuse the call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, _REFUSAL)
        yield

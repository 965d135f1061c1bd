"""The artifact service: files that an environment depends on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_runner_api_pb2,
)

from beam_spark_runner.core import urns

_CHUNK_BYTES = 1 << 20


class ArtifactService(
    beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceServicer  # type: ignore[misc]
):
    """The gRPC servicer. ``provision_of`` finds the ProvisionInfo of the calling harness.

    Files are read from this machine. A harness can only read the files that are dependencies of
    its own environment.
    """

    def __init__(self, provision_of: Callable[[Any], beam_provision_api_pb2.ProvisionInfo]) -> None:
        self._provision_of = provision_of

    def ResolveArtifacts(self, request: Any, context: Any) -> Any:
        """Return the artifacts unchanged, since files need no resolution."""
        self._provision_of(context)
        return beam_artifact_api_pb2.ResolveArtifactsResponse(replacements=request.artifacts)

    def GetArtifact(self, request: Any, context: Any) -> Iterator[Any]:
        """Send one file in chunks."""
        artifact = request.artifact
        key = (artifact.type_urn, artifact.type_payload)
        keys = {
            (dependency.type_urn, dependency.type_payload)
            for dependency in self._provision_of(context).dependencies
        }
        if key not in keys or artifact.type_urn != urns.ARTIFACT_FILE:
            context.abort(
                grpc.StatusCode.NOT_FOUND, "it is not among the files of this environment"
            )
        payload = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload)
        try:
            with Path(payload.path).open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield beam_artifact_api_pb2.GetArtifactResponse(data=chunk)
        except OSError as error:
            context.abort(grpc.StatusCode.NOT_FOUND, f"{payload.path}: {error.strerror}")

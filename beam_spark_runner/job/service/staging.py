"""What clients stage: files that the environments of a pipeline depend on.

Beam's own ``artifact_service`` does not fit: a staging that fails leaves its job waiting for
ever or running with paths of the client's machine, nothing limits it, and hashes are not compared.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_runner_api_pb2,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import StagingError
from beam_spark_runner.job.service.refusals import TooLargeError, refuses_in_stream
from beam_spark_runner.job.service.staging_area import StagingArea
from beam_spark_runner.portable.artifacts import described


class StagedFiles:
    """The files of one pipeline, in a part of the staging area, named by their contents.

    Threads: any; one at a time stages.

    Args:
        pipeline: names what its environments depend on. It is not changed.
        area: the part for this pipeline.
        limit_bytes: of all files together.

    Attributes:
        is_complete: whether all has been staged.
        touched_s: when a part of a file has come last, by the monotonic clock.
    """

    def __init__(
        self, pipeline: beam_runner_api_pb2.Pipeline, area: StagingArea, limit_bytes: int
    ) -> None:
        self._wanted = {
            id_: list(each.dependencies)
            for id_, each in pipeline.components.environments.items()
            if each.dependencies
        }
        self._staged: dict[str, list[beam_runner_api_pb2.ArtifactInformation]] = {}
        self._area = area
        self._limit_bytes = limit_bytes
        self._room_bytes = limit_bytes
        self._turn = threading.Lock()
        self.is_complete = not self._wanted
        self.touched_s = time.monotonic()

    def stage(self, answers: Iterator[Any]) -> Iterator[Any]:
        """Ask a client for what is wanted.

        Args:
            answers: ArtifactResponseWrappers, each to what was asked for last.

        Yields:
            ArtifactRequestWrappers.

        Raises:
            StagingError: the client does not give what the pipeline names.
            TooLargeError: it gives more than it may.
        """
        with self._turn:
            self._room_bytes = self._limit_bytes
            if not self._wanted:
                # The TypeScript SDK waits for ever, now and then, if it is asked nothing at all.
                yield _resolve([])
                _next(answers, "resolve_artifact_response")
            for environment, wanted in self._wanted.items():
                yield _resolve(wanted)
                resolved = _next(answers, "resolve_artifact_response").replacements
                staged: list[beam_runner_api_pb2.ArtifactInformation] = []
                for artifact in resolved:
                    staged.append((yield from self._fetch(artifact, answers)))
                self._staged[environment] = staged
            self.is_complete = True

    def _fetch(
        self, artifact: beam_runner_api_pb2.ArtifactInformation, answers: Iterator[Any]
    ) -> Generator[Any, None, beam_runner_api_pb2.ArtifactInformation]:
        """Ask for one file; returns an artifact that names it as it lies here."""
        if artifact.type_urn == urns.ARTIFACT_EMBEDDED:
            data = beam_runner_api_pb2.EmbeddedFilePayload.FromString(artifact.type_payload).data
            return self._keep(artifact, iter([data]))
        yield beam_artifact_api_pb2.ArtifactRequestWrapper(
            get_artifact=beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)
        )
        return self._keep(artifact, _chunks(answers))

    def _keep(
        self, artifact: beam_runner_api_pb2.ArtifactInformation, chunks: Iterator[bytes]
    ) -> beam_runner_api_pb2.ArtifactInformation:
        """Write a file under the hash of its content, whatever the client calls it."""
        try:
            with self._area.receive() as file:
                sha256 = self._write(chunks, file)
                file.close()
                _compare(artifact, sha256)
                kept = self._area.keep(file.name, sha256)
        except OSError as error:
            raise StagingError(f"the job server cannot write: {error.strerror}") from error
        file_payload = beam_runner_api_pb2.ArtifactFilePayload(path=kept, sha256=sha256)
        return beam_runner_api_pb2.ArtifactInformation(
            type_urn=urns.ARTIFACT_FILE,
            type_payload=file_payload.SerializeToString(),
            role_urn=artifact.role_urn,
            role_payload=artifact.role_payload,
        )

    def _write(self, chunks: Iterator[bytes], file: Any) -> str:
        """Write a file; return its hash."""
        digest = hashlib.sha256()
        for chunk in chunks:
            self.touched_s = time.monotonic()
            self._room_bytes -= len(chunk)
            if self._room_bytes < 0:
                raise TooLargeError(
                    "the files of this pipeline exceed the job server's limit of "
                    f"{self._limit_bytes} bytes (--max_artifact_bytes)"
                )
            digest.update(chunk)
            file.write(chunk)
        return digest.hexdigest()

    def replace_in(self, pipeline: beam_runner_api_pb2.Pipeline) -> None:
        """Let the environments of a pipeline name the files as they lie here."""
        for id_, artifacts in self._staged.items():
            dependencies = pipeline.components.environments[id_].dependencies
            del dependencies[:]
            dependencies.extend(artifacts)


def _resolve(artifacts: Sequence[beam_runner_api_pb2.ArtifactInformation]) -> Any:
    return beam_artifact_api_pb2.ArtifactRequestWrapper(
        resolve_artifact=beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=artifacts)
    )


def _next(answers: Iterator[Any], kind: str) -> Any:
    """Return the next answer, which is to be of a certain kind."""
    answer = next(answers, None)
    if answer is None:
        raise StagingError("the client ended before it had sent all files")
    if answer.WhichOneof("response") != kind:
        raise StagingError(
            f"the client sent {answer.WhichOneof('response') or 'nothing'} in place of {kind}"
        )
    return getattr(answer, kind)


def _chunks(answers: Iterator[Any]) -> Iterator[bytes]:
    """Yield the content of one file."""
    while True:
        answer = next(answers, None)
        if answer is None:
            raise StagingError("the client ended in the middle of a file")
        # What is empty may be left out of the last message.
        if answer.WhichOneof("response") not in ("get_artifact_response", None):
            raise StagingError("the client sent something else in the middle of a file")
        yield answer.get_artifact_response.data
        if answer.is_last:
            return


def _compare(artifact: beam_runner_api_pb2.ArtifactInformation, sha256: str) -> None:
    """Check a file against what the pipeline says of its content, if it does."""
    if artifact.type_urn == urns.ARTIFACT_FILE:
        payload = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload)
    elif artifact.type_urn == urns.ARTIFACT_URL:
        payload = beam_runner_api_pb2.ArtifactUrlPayload.FromString(artifact.type_payload)
    else:
        return
    if payload.sha256 and payload.sha256 != sha256:
        raise StagingError(
            f"{described(artifact)} has SHA-256 {sha256}; the pipeline says {payload.sha256}"
        )


class StagingService(
    beam_artifact_api_pb2_grpc.ArtifactStagingServiceServicer  # type: ignore[misc]
):
    """The gRPC side. ``files_of`` finds what a staging token is for."""

    def __init__(self, files_of: Callable[[str], StagedFiles]) -> None:
        self._files_of = files_of

    @refuses_in_stream
    def ReverseArtifactRetrievalService(self, request: Any, context: Any) -> Iterator[Any]:
        """Ask the client, which says first what for, for its files."""
        context.send_initial_metadata(())  # some clients wait for it before they say anything
        first = next(request, None)
        if first is not None:
            yield from self._files_of(first.staging_token).stage(request)

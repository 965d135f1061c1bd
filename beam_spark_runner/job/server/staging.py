"""Staging: clients send the files that the environments of a pipeline depend on.

Beam's own ``artifact_service`` is not used: after a failed staging, its job waits forever, or runs
with paths of the client's machine. It has no limit of size either, and does not compare hashes.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_runner_api_pb2,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import StagingError
from beam_spark_runner.job.server.patient_stream import PatientStream
from beam_spark_runner.job.server.refusals import (
    ReplacedStreamError,
    TooLargeError,
    refuses_in_stream,
)
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.portable.alternatives import chosen_environments
from beam_spark_runner.portable.artifacts import described

_PATIENCE_S = 600.0
"""The longest time for which a client may send nothing, or receive nothing, while it stages."""
_MAX_DESCRIBED_BYTES = 16 << 20  # of all files of a pipeline: names and roles, which are kept
_MAX_EMPTY = 10  # messages without data, one after another, within a file


class StagedArtifacts:
    """The files of one pipeline, named by the hashes of their contents.

    Threads: any. ``stage`` runs in one at a time: a later call ends an earlier one, since a client
    that stages again has lost its connection.

    Args:
        pipeline: The proto, whose environments name the files. It is not changed, nor kept.
        area: The staging area of this pipeline.
        limit_bytes: The most bytes of all files together.

    Raises:
        InvalidPipelineError: An ANYOF environment is invalid.

    Attributes:
        is_complete: Whether all files have been staged.
        touched_s: When the last chunk of a file arrived, or else when this object was made:
            seconds of the monotonic clock.
    """

    def __init__(
        self, pipeline: beam_runner_api_pb2.Pipeline, area: StagingArea, limit_bytes: int
    ) -> None:
        chosen = chosen_environments(pipeline.components)
        self._dependencies = {  # copies: a part of a message would keep all of it in memory
            id_: [_copy(dependency) for dependency in environment.dependencies]
            for id_, environment in chosen.items()
            if environment.dependencies
        }
        self._staged: dict[str, list[beam_runner_api_pb2.ArtifactInformation]] = {}
        self._area = area
        self._limit_bytes = limit_bytes
        self._room_bytes = limit_bytes
        self._room_described = _MAX_DESCRIBED_BYTES
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._latest: PatientStream | None = None
        self.is_complete = not self._dependencies
        self.touched_s = time.monotonic()

    def stage(self, answers: PatientStream) -> Iterator[Any]:
        """Request all files from a client, and store them.

        Args:
            answers: The client's ArtifactResponseWrappers, one or more for each request.

        Yields:
            Requests to the client: ArtifactRequestWrappers.

        Raises:
            StagingError: The client does not send the files that the pipeline names.
            TooLargeError: The files exceed the limit.
            SilentClientError: The client has sent nothing for too long.
            ReplacedStreamError: The client stages by another stream, which began later; or an
                earlier one, which has to end first, does not end.
        """
        with self._lock:
            earlier, self._latest = self._latest, answers
        if earlier is not None:
            earlier.fail(ReplacedStreamError("the client stages the same files by another stream"))
        if not self._turn.acquire(timeout=_PATIENCE_S):
            raise ReplacedStreamError("an earlier stream with the same staging token has not ended")
        try:
            yield from self._stage(answers)
        finally:
            self._turn.release()
            with self._lock:
                if self._latest is answers:
                    self._latest = None

    def _stage(self, answers: Iterator[Any]) -> Iterator[Any]:
        self._room_bytes = self._limit_bytes
        self._room_described = _MAX_DESCRIBED_BYTES
        if not self._dependencies:
            # The TypeScript SDK sometimes waits forever if it gets no request at all.
            yield _resolve([])
            _next(answers, "resolve_artifact_response")
        for environment, dependencies in self._dependencies.items():
            yield _resolve(dependencies)
            resolved = _next(answers, "resolve_artifact_response").replacements
            staged: list[beam_runner_api_pb2.ArtifactInformation] = []
            for artifact in resolved:
                staged.append((yield from self._fetch(artifact, answers)))
            self._staged[environment] = staged
        self.is_complete = True

    def _fetch(
        self, artifact: beam_runner_api_pb2.ArtifactInformation, answers: Iterator[Any]
    ) -> Generator[Any, None, beam_runner_api_pb2.ArtifactInformation]:
        """Request one file and store it; return an artifact with its location on the server."""
        if artifact.type_urn == urns.ARTIFACT_EMBEDDED:
            data = beam_runner_api_pb2.EmbeddedFilePayload.FromString(artifact.type_payload).data
            return self._store(artifact, iter([data]))
        yield beam_artifact_api_pb2.ArtifactRequestWrapper(
            get_artifact=beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)
        )
        return self._store(artifact, _chunks(answers))

    def _store(
        self, artifact: beam_runner_api_pb2.ArtifactInformation, chunks: Iterator[bytes]
    ) -> beam_runner_api_pb2.ArtifactInformation:
        """Store a file under the hash of its content; return an artifact with its location.

        Raises:
            StagingError: The file cannot be written, or has another hash than the pipeline says.
            TooLargeError: The files exceed the limit.
        """
        try:
            with self._area.receive() as file:
                sha256 = self._write(chunks, file)
                file.close()
                _compare(artifact, sha256)
                location = self._area.store(file.name, sha256)
        except OSError as error:
            raise StagingError(f"the job server cannot write: {error.strerror}") from error
        file_payload = beam_runner_api_pb2.ArtifactFilePayload(path=location, sha256=sha256)
        located = beam_runner_api_pb2.ArtifactInformation(
            type_urn=urns.ARTIFACT_FILE,
            type_payload=file_payload.SerializeToString(),
            role_urn=artifact.role_urn,
            role_payload=artifact.role_payload,
        )
        self._room_described -= located.ByteSize()
        if self._room_described < 0:
            raise TooLargeError(
                f"the names and roles of the files of this pipeline exceed {_MAX_DESCRIBED_BYTES} "
                "bytes"
            )
        return located

    def _write(self, chunks: Iterator[bytes], file: Any) -> str:
        """Write a file; return the SHA-256 of its content in hexadecimal digits."""
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

    def located_artifacts(self) -> dict[str, tuple[bytes, ...]]:
        """Return the staged artifacts of each environment, serialised."""
        return {
            id_: tuple(artifact.SerializeToString() for artifact in staged)
            for id_, staged in self._staged.items()
        }


def replace_artifacts(
    pipeline: beam_runner_api_pb2.Pipeline, staged: Mapping[str, Sequence[bytes]], area: StagingArea
) -> None:
    """Replace the dependencies of a pipeline's environments by the staged files.

    An ANYOF environment is replaced by the alternative whose files were staged: names of files on
    the client's machine must not be looked for on this one.

    Args:
        pipeline: The pipeline, which is changed.
        staged: See ``StagedArtifacts.located_artifacts``.
        area: Where the files are now.
    """
    for id_, chosen in chosen_environments(pipeline.components).items():
        environment = pipeline.components.environments[id_]
        environment.CopyFrom(chosen)
        if id_ in staged:
            del environment.dependencies[:]
            environment.dependencies.extend(_located(artifact, area) for artifact in staged[id_])


def _located(coded: bytes, area: StagingArea) -> beam_runner_api_pb2.ArtifactInformation:
    artifact = beam_runner_api_pb2.ArtifactInformation.FromString(coded)
    file = beam_runner_api_pb2.ArtifactFilePayload.FromString(artifact.type_payload)
    file.path = f"{area.location}/{file.sha256}"
    artifact.type_payload = file.SerializeToString()
    return artifact


def _copy(
    artifact: beam_runner_api_pb2.ArtifactInformation,
) -> beam_runner_api_pb2.ArtifactInformation:
    copy = beam_runner_api_pb2.ArtifactInformation()
    copy.CopyFrom(artifact)
    return copy


def _resolve(artifacts: Sequence[beam_runner_api_pb2.ArtifactInformation]) -> Any:
    return beam_artifact_api_pb2.ArtifactRequestWrapper(
        resolve_artifact=beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=artifacts)
    )


def _next(answers: Iterator[Any], kind: str) -> Any:
    """Return the content of the next answer, whose ``response`` field must be ``kind``."""
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
    empty = 0
    while True:
        answer = next(answers, None)
        if answer is None:
            raise StagingError("the client ended in the middle of a file")
        # A last message without data may have no response at all.
        if answer.WhichOneof("response") not in ("get_artifact_response", None):
            raise StagingError("the client sent something else in the middle of a file")
        data = answer.get_artifact_response.data
        yield data
        if answer.is_last:
            return
        empty = 0 if data else empty + 1
        if empty > _MAX_EMPTY:
            raise StagingError("the client sends messages without data in the middle of a file")


def _compare(artifact: beam_runner_api_pb2.ArtifactInformation, sha256: str) -> None:
    """Raise a StagingError if the pipeline gives another SHA-256 for a file."""
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
    """``ArtifactStagingService`` of Beam's API; ``files_of`` returns the files of a token."""

    def __init__(self, files_of: Callable[[str], StagedArtifacts]) -> None:
        self._files_of = files_of

    @refuses_in_stream
    def ReverseArtifactRetrievalService(self, request: Any, context: Any) -> Iterator[Any]:
        """Request files from a client, whose first message has the staging token."""
        context.send_initial_metadata(())  # some clients wait for it before they send a message
        with contextlib.closing(PatientStream(request, context.cancel, _PATIENCE_S)) as stream:
            first = next(stream, None)
            if first is not None:
                files = self._files_of(first.staging_token)
                yield from stream.send(files.stage(stream))

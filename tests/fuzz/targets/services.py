"""The small services of the Fn API: logging, status, artifacts."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, cast

from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_fn_api_pb2,
    beam_provision_api_pb2,
    beam_runner_api_pb2,
)
from google.protobuf.message import Message

from beam_spark_runner.backchannel.log_lines import STDERR, category_of, shorten
from beam_spark_runner.core import urns
from beam_spark_runner.harness.fn_api.services.artifact_service import ArtifactService
from beam_spark_runner.harness.fn_api.services.logging_service import LoggingService, LogStream
from beam_spark_runner.harness.fn_api.services.status_service import StatusStream
from tests.fuzz.targets.base import Context, Messages, MessageTarget, Target

LogEntries: TypeAlias = beam_fn_api_pb2.LogEntry.List


class _Sink:
    """As a worker's connection to the driver, and then the driver."""

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        shorten(entry)
        again = beam_fn_api_pb2.LogEntry.FromString(entry.SerializeToString())
        category_of(again)
        STDERR.log(again)

    def leave_out(self, lines: int) -> None:
        STDERR.leave_out(lines)


class Logs(MessageTarget[LogEntries]):
    """Log lines."""

    name = "logs"

    def message(self, random_: random.Random) -> Message:
        changed: LogEntries = super().message(random_)
        for each in changed.log_entries:
            if random_.random() < 0.2:
                name = random_.choice(("lines_left_out", "log_mark", "category", "beam"))
                each.custom_data[name] = random_.choice((1e308, -1.0, "x", None, True))
            if random_.random() < 0.2:  # as the plugin of this package marks its own lines
                kind = random_.choice(("left_out", "mark", "warning/", "warning/a.B:c.py:1"))
                each.log_location = f"/beam_spark_runner/{kind}"
                each.message = random_.choice((*self.pool.texts, "7"))
        return cast(Message, changed)

    def take(self, message: LogEntries) -> object:
        stream = LogStream()
        stream.sink = _Sink()
        return list(LoggingService(lambda call: stream).Logging(iter([message]), Context()))


class Statuses(MessageTarget[beam_fn_api_pb2.WorkerStatusResponse]):
    """Answers to requests for the status of a harness."""

    name = "status"
    share = 0.3

    def take(self, message: beam_fn_api_pb2.WorkerStatusResponse) -> object:
        stream = StatusStream()
        stream._is_open.set()
        asked = stream._requests
        answers: list[str | None] = []

        class _Asked:
            """In place of the thread that reads the stream."""

            def put(self, request: beam_fn_api_pb2.WorkerStatusRequest | None) -> None:
                if request is not None:
                    message.id = message.id if message.id == "other" else request.id
                    stream._read(iter([message]))
                    asked.put(request)

        stream._requests = _Asked()  # type: ignore[assignment]
        answers.append(stream.ask(0.0))
        return answers


class Artifacts(MessageTarget[beam_artifact_api_pb2.GetArtifactRequest]):
    """Requests for files."""

    name = "artifacts"
    share = 0.5

    def __init__(self, messages: Sequence[beam_artifact_api_pb2.GetArtifactRequest]) -> None:
        super().__init__(messages)
        own = beam_runner_api_pb2.ArtifactFilePayload(path=__file__).SerializeToString()
        self._provision = beam_provision_api_pb2.ProvisionInfo(
            dependencies=[
                beam_runner_api_pb2.ArtifactInformation(
                    type_urn=urns.ARTIFACT_FILE, type_payload=own
                ),
                beam_runner_api_pb2.ArtifactInformation(type_urn="other", type_payload=b"\xff"),
            ]
        )

    def take(self, message: beam_artifact_api_pb2.GetArtifactRequest) -> object:
        service = ArtifactService(lambda call: self._provision)
        resolve = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=[message.artifact])
        service.ResolveArtifacts(resolve, Context()).SerializeToString()
        content = b"".join(each.data for each in service.GetArtifact(message, Context()))
        assert content == Path(__file__).read_bytes()
        return content


def _requests() -> list[beam_artifact_api_pb2.GetArtifactRequest]:
    return [
        beam_artifact_api_pb2.GetArtifactRequest(
            artifact=beam_runner_api_pb2.ArtifactInformation(
                type_urn=urns.ARTIFACT_FILE,
                type_payload=beam_runner_api_pb2.ArtifactFilePayload(
                    path=path, sha256="00"
                ).SerializeToString(),
                role_urn=urns.ARTIFACT_STAGING_TO,
                role_payload=b"",
            )
        )
        for path in (__file__, "/etc/passwd", "/")
    ]


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    asked = beam_artifact_api_pb2.GetArtifactRequest
    logs = messages.of(LogEntries)
    statuses = messages.of(beam_fn_api_pb2.WorkerStatusResponse)
    a_status = beam_fn_api_pb2.WorkerStatusResponse(id="1", status_info="--- Thread #1\n" * 3)
    return [
        Logs([each for _, each in logs]),
        Statuses([*(each for _, each in statuses), a_status]),
        Artifacts([*(each for _, each in messages.of(asked)), *_requests()]),
    ]

"""What a job server stores of a job: its submission, and its end."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_spark_runner.job.watching.record import StateChange
from beam_spark_runner.recovery.formats import JOBS
from beam_spark_runner.recovery.manifest import checked_fields, with_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """What a client has submitted. It is serialised: parsed messages occupy several times as much.

    Attributes:
        preparation_id: The id of the client's preparation.
        name: The job name that the client sent.
        title: See ``title_of``.
        coded_pipeline: The pipeline that the client sent.
        coded_options: The options that the client sent, a Struct.
        staged: The artifacts that the client has staged for each environment, serialised, with
            their locations on the server.
        began_s: When the client submitted the job, Unix time.
    """

    preparation_id: str
    name: str
    title: str
    coded_pipeline: bytes
    coded_options: bytes
    staged: Mapping[str, Sequence[bytes]]
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """How a job has ended.

    Attributes:
        states: All states of the job.
        error: Why it has failed. "": it has not.
        coded_metrics: Its last metrics, a serialised MetricResults.
    """

    states: Sequence[StateChange]
    error: str = ""
    coded_metrics: bytes = b""


def encode_submitted(job: SubmittedJob, versions: Mapping[str, str]) -> bytes:
    """Encode a submission as a file of two lines: the digest of the second one, which is JSON.

    Args:
        job: The submission.
        versions: The versions that a later start must have, by name.
    """
    return with_digest({"versions": dict(versions), **_fields_of(job)}, JOBS)


def decode_submitted(data: bytes, name: str) -> tuple[SubmittedJob, Mapping[str, str]]:
    """Decode the file of a submission; return it with its versions.

    Args:
        data: The content of the file.
        name: The name of the file, for errors.

    Raises:
        CorruptManifestError: The file is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    fields = checked_fields(data, name, JOBS)
    versions = fields.pop("versions")
    return _submitted_of(fields), versions


def encode_ended(job: SubmittedJob, ended: EndedJob) -> bytes:
    """Encode the end of a job with its submission, which is removed with the rest of the job."""
    return with_digest(
        {
            "job": _fields_of(job),
            "states": [list(state) for state in ended.states],
            "error": ended.error,
            "metrics": _base64(ended.coded_metrics),
        },
        JOBS,
    )


def decode_ended(data: bytes, name: str) -> tuple[SubmittedJob, EndedJob]:
    """Decode the file of an ended job; see ``decode_submitted`` for arguments and errors."""
    fields = checked_fields(data, name, JOBS)
    ended = EndedJob(
        states=tuple(StateChange(*state) for state in fields["states"]),
        error=fields["error"],
        coded_metrics=base64.b64decode(fields["metrics"]),
    )
    return _submitted_of(fields["job"]), ended


def _fields_of(job: SubmittedJob) -> dict[str, Any]:
    return {
        "preparation_id": job.preparation_id,
        "name": job.name,
        "title": job.title,
        "pipeline": _base64(job.coded_pipeline),
        "options": _base64(job.coded_options),
        "staged": {
            id_: [_base64(artifact) for artifact in files] for id_, files in job.staged.items()
        },
        "began_s": job.began_s,
    }


def _submitted_of(fields: dict[str, Any]) -> SubmittedJob:
    return SubmittedJob(
        preparation_id=fields["preparation_id"],
        name=fields["name"],
        title=fields["title"],
        coded_pipeline=base64.b64decode(fields["pipeline"]),
        coded_options=base64.b64decode(fields["options"]),
        staged={
            id_: tuple(base64.b64decode(coded) for coded in files)
            for id_, files in fields["staged"].items()
        },
        began_s=fields["began_s"],
    )


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()

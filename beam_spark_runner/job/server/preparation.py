"""A pipeline that a client has prepared, and not run yet."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.job.server.job_forms import SubmittedJob
from beam_spark_runner.job.server.job_titles import short_name, title_of
from beam_spark_runner.job.server.refusals import TooManyJobsError
from beam_spark_runner.job.server.staging import StagedArtifacts
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.job.server.stored_job import StoredJob
from beam_spark_runner.options.server_options import ServerConfig

_TIMES_OF_A_JOB = 3
"""The memory of a compiled job in the queue, as a multiple of the size of pipeline and options: 2.4
was measured for pipelines of many small steps, 1.9 for one large step."""
_BYTES_OF_EACH = 10_000


def waiting_bytes_of(coded_pipeline: bytes, coded_options: bytes, name: str) -> int:
    """Return the estimated memory of a job from its preparation until it begins, in bytes."""
    size = len(coded_pipeline) + len(coded_options) + sys.getsizeof(name)
    return _TIMES_OF_A_JOB * size + _BYTES_OF_EACH


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A prepared pipeline, serialised.

    Parsed messages of protobuf occupy several times their size, and a part of one keeps all of it.

    Attributes:
        name: The job name that the client sent.
        shown_name: The job's name in the server's log.
        coded_pipeline: The pipeline that the client sent.
        coded_options: The options that the client sent, a Struct.
        place: The staging area of the job, or the job in ``--jobs_dir``.
        files: The files that the client stages there.
    """

    name: str
    shown_name: str
    coded_pipeline: bytes
    coded_options: bytes
    place: StagingArea | StoredJob
    files: StagedArtifacts

    @classmethod
    def of_request(
        cls,
        request: beam_job_api_pb2.PrepareJobRequest,
        options: Mapping[str, Any],
        place: StagingArea | StoredJob,
        limit_bytes: int,
    ) -> "Preparation":
        """Return the preparation of a request.

        Args:
            request: The client's request.
            options: Its options, by name.
            place: Where the files of the job are stored.
            limit_bytes: The most bytes of its staged files.

        Raises:
            InvalidPipelineError: An ANYOF environment is invalid.
        """
        # --job_name comes first, since Beam's own client names all jobs "job".
        shown_name = str(options.get("job_name") or request.job_name)
        return cls(
            name=request.job_name,
            shown_name=short_name(shown_name),
            coded_pipeline=request.pipeline.SerializeToString(),
            coded_options=request.pipeline_options.SerializeToString(),
            place=place,
            files=StagedArtifacts(request.pipeline, area_of(place), limit_bytes),
        )

    @property
    def waiting_bytes(self) -> int:
        """See ``waiting_bytes_of``."""
        return waiting_bytes_of(self.coded_pipeline, self.coded_options, self.name)

    def submission(self, preparation_id: str, peer: str) -> SubmittedJob:
        """Return the submission, once the client has staged all files.

        Args:
            preparation_id: The id of this preparation.
            peer: The client's address, as gRPC writes it.
        """
        return SubmittedJob(
            preparation_id=preparation_id,
            name=self.name,
            title=title_of(self.shown_name, peer),
            coded_pipeline=self.coded_pipeline,
            coded_options=self.coded_options,
            staged=self.files.located_artifacts(),
            began_s=time.time(),
        )


class _Waiting(Protocol):
    """What waits: a preparation, or a job in the queue."""

    @property
    def waiting_bytes(self) -> int:
        """See ``waiting_bytes_of``."""
        ...


def check_room(new: _Waiting, waiting: Sequence[_Waiting], config: ServerConfig) -> None:
    """Check whether one more preparation may wait.

    Args:
        new: The preparation.
        waiting: All that wait already.
        config: The configuration of the server, with its limits.

    Raises:
        TooManyJobsError: As many wait as ``--max_waiting_jobs`` or ``--max_waiting_bytes`` allows.
    """
    if len(waiting) >= config.max_waiting_jobs:
        raise TooManyJobsError(
            f"{len(waiting)} jobs wait already, as many as --max_waiting_jobs of the job "
            "server allows; try again later"
        )
    needed_bytes, max_bytes = new.waiting_bytes, config.max_waiting_bytes
    waiting_bytes = sum(item.waiting_bytes for item in waiting)
    if needed_bytes > max_bytes:
        raise TooManyJobsError(
            f"this pipeline needs about {needed_bytes} bytes of memory while it waits; "
            f"--max_waiting_bytes of the job server is {max_bytes}"
        )
    if waiting_bytes + needed_bytes > max_bytes:
        raise TooManyJobsError(
            f"this pipeline needs about {needed_bytes} bytes of memory while it waits, and the "
            f"{len(waiting)} jobs that wait already have {waiting_bytes} of the {max_bytes} that "
            "--max_waiting_bytes of the job server allows; try again later"
        )


def area_of(place: StagingArea | StoredJob) -> StagingArea:
    """Return where the client stages the files of a job."""
    return place.files if isinstance(place, StoredJob) else place

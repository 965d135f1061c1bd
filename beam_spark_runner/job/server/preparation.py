"""A pipeline that a client has prepared, and not run yet."""

import sys
from dataclasses import dataclass

from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.job.server.job_titles import short_name
from beam_spark_runner.job.server.staging import StagedArtifacts
from beam_spark_runner.job.server.staging_area import StagingArea

_TIMES_OF_A_JOB = 3
"""The memory of a compiled job in the queue, as a multiple of the size of pipeline and options: 2.4
was measured for pipelines of many small steps, 1.9 for one large step."""
_BYTES_OF_EACH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A prepared pipeline, serialised.

    Parsed messages of protobuf occupy several times their size, and a part of one keeps all of it.

    Attributes:
        name: The job name that the client sent.
        shown_name: The job's name in the server's log.
        coded_pipeline: The pipeline that the client sent.
        coded_options: The options that the client sent, a Struct.
        area: The staging area of the job.
        files: The files that the client stages there.
        waiting_bytes: The estimated memory of the job, from now until it begins, in bytes.
    """

    name: str
    shown_name: str
    coded_pipeline: bytes
    coded_options: bytes
    area: StagingArea
    files: StagedArtifacts
    waiting_bytes: int

    @classmethod
    def of(
        cls,
        request: beam_job_api_pb2.PrepareJobRequest,
        shown_name: str,
        area: StagingArea,
        limit_bytes: int,
    ) -> "Preparation":
        """Return the preparation of a request.

        Args:
            request: The client's request.
            shown_name: The job's name in the server's log.
            area: The staging area of the job.
            limit_bytes: The most bytes of its staged files.
        """
        coded_pipeline = request.pipeline.SerializeToString()
        coded_options = request.pipeline_options.SerializeToString()
        size = len(coded_pipeline) + len(coded_options) + sys.getsizeof(request.job_name)
        return cls(
            name=request.job_name,
            shown_name=short_name(shown_name),
            coded_pipeline=coded_pipeline,
            coded_options=coded_options,
            area=area,
            files=StagedArtifacts(request.pipeline, area, limit_bytes),
            waiting_bytes=_TIMES_OF_A_JOB * size + _BYTES_OF_EACH,
        )

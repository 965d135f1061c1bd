"""The server's implementation of the service ``StreamingJobs``."""

from typing import Any

from beam_spark_runner._generated import streaming_jobs_pb2
from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT
from beam_spark_runner.job.server.client_options import check_place
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.refusals import refuses
from beam_spark_runner.options.values import required_folder


class StreamingJobsService:
    """The gRPC servicer. See ``protos/streaming_jobs.proto``.

    Args:
        jobs: The jobs of the server.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    @refuses
    def GetWatermarks(self, request: Any, context: Any) -> Any:
        """See ``ServedJob.watermarks``."""
        watermarks = self._jobs.job(request.job_id).watermarks()
        return streaming_jobs_pb2.GetWatermarksResponse(
            steps={
                name: streaming_jobs_pb2.StepWatermarks(
                    input_us=step.input.micros, output_us=step.output.micros
                )
                for name, step in watermarks.items()
            }
        )

    @refuses
    def MakeSavepoint(self, request: Any, context: Any) -> Any:
        """See ``ServedJob.make_savepoint``."""
        job = self._jobs.job(request.job_id)
        return streaming_jobs_pb2.MakeSavepointResponse(
            epoch=job.make_savepoint(_folder(request.path))
        )


def _folder(path: str) -> str:
    folder = required_folder(SAVEPOINT_ARGUMENT, path)
    check_place(SAVEPOINT_ARGUMENT, folder)
    return folder

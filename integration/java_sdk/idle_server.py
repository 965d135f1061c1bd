"""A job server that reports every job as DONE, and runs nothing.

A test that passes on it does not check what its pipeline does, or only inside the pipeline.
"""

import contextlib
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    endpoints_pb2,
)

_DONE = beam_job_api_pb2.JobState.DONE


@contextlib.contextmanager
def idle_server() -> Iterator[str]:
    """Run the server in this process.

    Yields:
        HOST:PORT of its job service.
    """
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", -1)])
    jobs = _Jobs()
    jobs.url = f"localhost:{server.add_insecure_port('localhost:0')}"
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
    beam_artifact_api_pb2_grpc.add_ArtifactStagingServiceServicer_to_server(_NoFiles(), server)
    server.start()
    try:
        yield jobs.url
    finally:
        server.stop(None).wait()


class _NoFiles(beam_artifact_api_pb2_grpc.ArtifactStagingServiceServicer):  # type: ignore[misc]
    def ReverseArtifactRetrievalService(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        return iter(())


class _Jobs(beam_job_api_pb2_grpc.JobServiceServicer):  # type: ignore[misc]
    url = ""

    def __init__(self) -> None:
        self._prepared: dict[str, beam_job_api_pb2.PrepareJobRequest] = {}

    def Prepare(self, request: Any, context: Any) -> beam_job_api_pb2.PrepareJobResponse:
        id_ = uuid.uuid4().hex
        self._prepared[id_] = request
        return beam_job_api_pb2.PrepareJobResponse(
            preparation_id=id_,
            artifact_staging_endpoint=endpoints_pb2.ApiServiceDescriptor(url=self.url),
            staging_session_token=id_,
        )

    def Run(self, request: Any, context: Any) -> beam_job_api_pb2.RunJobResponse:
        return beam_job_api_pb2.RunJobResponse(job_id=request.preparation_id)

    def GetJobs(self, request: Any, context: Any) -> beam_job_api_pb2.GetJobsResponse:
        jobs = [
            beam_job_api_pb2.JobInfo(job_id=id_, pipeline_options=each.pipeline_options)
            for id_, each in self._prepared.items()
        ]
        return beam_job_api_pb2.GetJobsResponse(job_info=jobs)

    def GetPipeline(self, request: Any, context: Any) -> beam_job_api_pb2.GetJobPipelineResponse:
        pipeline = self._prepared[request.job_id].pipeline
        return beam_job_api_pb2.GetJobPipelineResponse(pipeline=pipeline)

    def GetState(self, request: Any, context: Any) -> beam_job_api_pb2.JobStateEvent:
        return beam_job_api_pb2.JobStateEvent(state=_DONE)

    def GetStateStream(self, request: Any, context: Any) -> Iterator[Any]:
        yield beam_job_api_pb2.JobStateEvent(state=_DONE)

    def GetMessageStream(self, request: Any, context: Any) -> Iterator[Any]:
        yield beam_job_api_pb2.JobMessagesResponse(
            state_response=beam_job_api_pb2.JobStateEvent(state=_DONE)
        )

    def GetJobMetrics(self, request: Any, context: Any) -> beam_job_api_pb2.GetJobMetricsResponse:
        return beam_job_api_pb2.GetJobMetricsResponse()

    def DescribePipelineOptions(
        self, request: Any, context: Any
    ) -> beam_job_api_pb2.DescribePipelineOptionsResponse:
        return beam_job_api_pb2.DescribePipelineOptionsResponse()

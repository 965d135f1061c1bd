"""``PortableRunnerTest``: pipelines that a client hands to a job service, over gRPC.

Beam's ``PortableRunner`` is the client. Where code runs in SDK harnesses, the service is our job
server, in a separate process. That has none in Spark's workers: for these it is Beam's own local
service, which hands each pipeline to the runner under test in place of ``FnApiRunner``.
"""

from typing import Any

import apache_beam as beam
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability import local_job_service, portable_runner_test

from integration.job_server import start_job_server
from integration.validates_runner import runners

# Now, and not in the first test that needs it: a Spark may take longer to start than a test may.
_SERVER = start_job_server() if runners.has_environment() else None


class _Job(local_job_service.BeamJob):  # type: ignore[misc]
    def _invoke_runner(self) -> Any:
        self.set_state(beam_job_api_pb2.JobState.RUNNING)
        runner = beam_pipeline.create_runner(runners.UNDER_TEST)
        given = self.pipeline_options()._all_options
        del given["spark_master_url"]  # every client sends Beam's default
        given.pop("job_name", None)  # no other job could use its harnesses
        options = PipelineOptions.from_dictionary(given)  # JSON has made text of numbers
        # For the client: the pipeline names its environments.
        portable = options.view_as(PortableOptions)
        portable.job_endpoint = None
        portable.environment_type = portable.environment_config = None
        return runner.run_portable_pipeline(self._pipeline_proto, options)


class _JobService(local_job_service.LocalJobServicer):  # type: ignore[misc]
    def GetJobMetrics(self, request: Any, context: Any = None) -> Any:
        """Return all committed metrics: whether they are the user's, the client finds out."""
        result = self._jobs[request.job_id].result
        infos = [] if result is None else result.monitoring_infos()
        return beam_job_api_pb2.GetJobMetricsResponse(
            metrics=beam_job_api_pb2.MetricResults(committed=infos)
        )


class PortableRunnerOnJobServiceTest(
    portable_runner_test.PortableRunnerTest  # type: ignore[misc]
):
    """Beam's class, on another job service. Its name is one for which Beam skips no test."""

    @classmethod
    def _create_job_endpoint(cls) -> str:
        # It serves until the process ends: results are asked for their state after the tests.
        if _SERVER is not None:
            return _SERVER
        cls._servicer = _JobService(beam_job_type=_Job)
        return f"localhost:{cls._servicer.start_grpc_server()}"

    def create_options(self) -> PipelineOptions:
        """Beam's own, and where the runner under test is to run user code."""
        options = super().create_options()
        runners.choose_environment(options)
        return options

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        """Return a pipeline of Beam's client, which stands for the runner under test."""
        client = self.get_runner()
        client.is_under_test = True
        return beam.Pipeline(client, self.create_options())

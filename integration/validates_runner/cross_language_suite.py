"""Beam's cross-language tests, with pipelines that our client submits to our job server.

The server is a separate process; it and the expansion service are different programs.
"""

from typing import Any

from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.transforms import validate_runner_xlang_test

from beam_spark_runner import SparkPortableRunner
from integration.job_server import start_job_server
from integration.validates_runner import runners

# Now, and not in the first test that needs it: a Spark may take longer to start than a test may.
_SERVER = start_job_server() if runners.is_spark_under_test() else None


class CrossLanguageOnJobServerTest(
    validate_runner_xlang_test.ValidateRunnerXlangTest  # type: ignore[misc]
):
    """Beam's class, whose tests all ask it for a pipeline."""

    def create_pipeline(self) -> Any:
        """Return a pipeline for the job server; where there is none, for the default runner."""
        if _SERVER is None:
            pipeline = TestPipeline()
        else:
            client = SparkPortableRunner()
            client.is_under_test = True
            # Tests share harnesses; what differs from job to job would keep them from that.
            options = PipelineOptions(["--environment_cache_millis=600000"])
            options.view_as(GoogleCloudOptions).job_name = None
            options.view_as(PortableOptions).job_endpoint = _SERVER
            runners.choose_environment(options)
            pipeline = TestPipeline(client, options)
        pipeline.not_use_test_runner_api = True
        return pipeline

"""What a submitted result shows of itself: its name, its state, the page of the server's Spark."""

import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.job.client.submitted import SubmittedPipelineResult
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.options.server_options import parse_server_options
from beam_spark_runner.runner import SparkPortableRunner
from tests.harness.test_job_access import server_with
from tests.harness.test_submitted_streams import another_server, submitted_to
from tests.unit.job.server.served import request, served

pytestmark = pytest.mark.grpc


def submit(api: JobApi) -> SubmittedPipelineResult:
    options = PipelineOptions([f"--job_endpoint={api.url}", "--job_name=sums"])
    result = SparkPortableRunner().run_portable_pipeline(request().pipeline, options)
    assert isinstance(result, SubmittedPipelineResult)
    return result


def test_name_and_state_are_shown_until_the_server_has_gone() -> None:
    with server_with("--max_concurrent_jobs=1") as (api, gate):
        running, waiting = submit(api), submit(api)
        gate.wait_for(1)
        assert repr(waiting) == "<SubmittedPipelineResult 'sums': STOPPED>"
        assert repr(running) == "<SubmittedPipelineResult 'sums': STARTING>"
        waiting.cancel()
        assert repr(waiting) == "<SubmittedPipelineResult 'sums': CANCELLED>"
        with pytest.raises(RuntimeError, match="CANCELLED"):
            waiting.wait_until_finish()
    assert repr(running) == "<SubmittedPipelineResult 'sums': UNKNOWN>"
    assert repr(waiting) == "<SubmittedPipelineResult 'sums': CANCELLED>"


def test_the_server_tells_clients_the_page_of_its_spark() -> None:
    config = parse_server_options(["--job_port=0", "--artifact_port=0"])
    page: str | None = "http://a-host:4040"
    with served(config) as (jobs, _):
        api = JobApi(config, jobs, lambda: page)
        try:
            assert submit(api).spark_ui_url == "http://a-host:4040"
            page = None
            assert submit(api).spark_ui_url is None
        finally:
            api.stop()


def test_results_of_other_job_servers_are_shown_without_their_state() -> None:
    with another_server() as endpoint, grpc.insecure_channel(endpoint) as channel:
        result = submitted_to(endpoint, channel)
        assert repr(result) == "<SubmittedPipelineResult '': UNKNOWN>"
        assert result.spark_ui_url is None

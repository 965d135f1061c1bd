"""``grpc.health.v1`` at the ports of a job server; without Spark."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from beam_spark_runner.job.export.health import Health
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.options.server_options import parse_server_options
from tests.harness.test_job_access import Papers
from tests.unit.job.server.served import served

pytestmark = pytest.mark.grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
JOB_SERVICE = "org.apache.beam.model.job_management.v1.JobService"


def test_probes_need_no_token_but_watchers_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    papers = Papers(tmp_path_factory.mktemp("papers"))
    flags = ["--job_port=0", "--artifact_port=0", *papers.of_server("token")]
    config, health = parse_server_options(flags), Health("jobs are read")
    with served(config) as (jobs, _):
        api = JobApi(config, jobs, follow_health=health.follow)
        try:
            for url in (api.url, api.artifact_url):
                with grpc.insecure_channel(url) as channel:
                    stub = health_pb2_grpc.HealthStub(channel)
                    for service in ("", JOB_SERVICE):
                        asked = health_pb2.HealthCheckRequest(service=service)
                        health.note_waiting("jobs are read")
                        assert stub.Check(asked).status != SERVING
                        health.note_ready()
                        assert stub.Check(asked).status == SERVING
                    with pytest.raises(grpc.RpcError) as raised:
                        next(stub.Watch(health_pb2.HealthCheckRequest()))
                    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        finally:
            api.stop()

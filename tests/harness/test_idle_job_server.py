"""Java's tests on a server that runs nothing: none has evidence of what its pipeline does."""

import grpc
import pytest
from apache_beam.portability.api import (
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    beam_runner_api_pb2,
)
from google.protobuf import struct_pb2

from integration.go_sdk.run import client_of
from integration.java_sdk.evidence import missing
from integration.java_sdk.idle_server import idle_server

pytestmark = pytest.mark.grpc


def test_a_server_that_runs_nothing_gives_no_evidence() -> None:
    with idle_server() as url, client_of(url) as client, grpc.insecure_channel(url) as channel:
        pipeline = beam_runner_api_pb2.Pipeline()
        pipeline.components.transforms["assert"].unique_name = "PAssert$0"
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        options = struct_pb2.Struct()
        options["beam:option:experiments:v1"] = ["a mark"]
        prepared = service.Prepare(
            beam_job_api_pb2.PrepareJobRequest(pipeline=pipeline, pipeline_options=options)
        )
        request = beam_job_api_pb2.RunJobRequest(preparation_id=prepared.preparation_id)
        job_id = service.Run(request).job_id
        assert client.jobs_with("a mark") == [job_id]
        assert list(missing(client.ended_job(job_id))) == ["PAssert$0 has not been satisfied"]

"""Clients that send anything at all to a job server: each call is answered, the next served."""

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_job_api_pb2,
)
from apache_beam.transforms import trigger, window
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.options.server_options import ServerConfig
from tests.stateful import Keeps
from tests.unit.job.server.served import request, served
from tests.unit.job.server.test_staging import artifact

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(600)]

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "200"))
JOBS = "/org.apache.beam.model.job_management.v1.JobService/"
STAGING = (
    "/org.apache.beam.model.job_management.v1.ArtifactStagingService/"
    "ReverseArtifactRetrievalService"
)
BY_ID = {
    "GetState": beam_job_api_pb2.GetJobStateRequest,
    "GetPipeline": beam_job_api_pb2.GetJobPipelineRequest,
    "Cancel": beam_job_api_pb2.CancelJobRequest,
    "GetJobMetrics": beam_job_api_pb2.GetJobMetricsRequest,
    "GetStateStream": beam_job_api_pb2.GetJobStateRequest,
    "GetMessageStream": beam_job_api_pb2.JobMessagesRequest,
}


def everything(pipeline: beam.Pipeline) -> None:
    """Steps of all kinds, so that what is sent has messages of all kinds."""
    numbers = pipeline | beam.Create([1, 2, 3])
    pairs = numbers | beam.Map(lambda x: (str(x), x)).with_output_types(tuple[str, int])
    pairs | "state" >> beam.ParDo(Keeps())
    pairs | beam.CombinePerKey(sum)
    windowed = pairs | beam.WindowInto(
        window.Sessions(10),
        trigger=trigger.Repeatedly(trigger.AfterCount(2)),
        accumulation_mode=trigger.AccumulationMode.DISCARDING,
    )
    windowed | beam.GroupByKey()
    numbers | "side" >> beam.Map(lambda x, y: x, beam.pvalue.AsDict(pairs))
    (pairs, pairs) | beam.CoGroupByKey()


def leaves(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Yield each field of a message that is set, with the message that has it."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is None:
                continue
            values = list(value.values())
        else:
            values = list(value) if field.is_repeated else [value]
        for each in values:
            yield from leaves(each)


def change(message: Message, random_: random.Random) -> None:
    """Change one field somewhere in a message."""
    places = list(leaves(message))
    owner, field = random_.choice(places)
    value = getattr(owner, field.name)
    names = [each for where, of in places if isinstance(each := getattr(where, of.name), str)]
    if field.message_type is not None or random_.random() < 0.2:
        if field.is_repeated and len(value) > 1:
            one = random_.choice(list(value))  # a key of a map, or an item
            value.pop(one) if hasattr(value, "keys") else value.remove(one)
        else:
            owner.ClearField(field.name)
    elif field.is_repeated:
        del value[random_.randrange(len(value)) :]
    elif isinstance(value, str):
        setattr(owner, field.name, random_.choice([*names, "", "x" * 1_000]))
    elif isinstance(value, bytes):
        setattr(owner, field.name, scrambled(value, random_))
    elif isinstance(value, bool):
        setattr(owner, field.name, not value)
    else:
        setattr(owner, field.name, random_.choice([0, 1, 2, 7]))


def mutated(message: Message, random_: random.Random) -> bytes:
    """Change some fields of a message, and now and then its bytes."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(random_.choice((0, 1, 1, 2, 3, 10))):
        if copy.ListFields():
            change(copy, random_)
    coded = copy.SerializeToString()
    return scrambled(coded, random_) if random_.random() < 0.1 else coded


def scrambled(coded: bytes, random_: random.Random) -> bytes:
    """Change some bytes."""
    found = bytearray(coded)
    for _ in range(random_.choice((1, 1, 2, 5, 30))):
        at = random_.randrange(len(found) + 1)
        kind = random_.randrange(4)
        if kind == 0:
            found[at : at + 1] = bytes([random_.randrange(256)])
        elif kind == 1:
            del found[at : at + random_.choice((1, 1, 4, 100))]
        elif kind == 2:
            found[at:at] = random_.randbytes(random_.choice((1, 1, 4, 100)))
        else:  # a part of it once more, elsewhere
            start = random_.randrange(len(found) + 1)
            found[at:at] = found[start : start + 50]
    return bytes(found)


class Client:
    """Sends bytes, and checks what is answered."""

    def __init__(self, url: str) -> None:
        self._channel = grpc.insecure_channel(url)
        self.refusals: set[Any] = set()

    def call(self, rpc: str, coded: bytes) -> bytes | None:
        """Return the last answer, None if the call was refused."""
        name = f"{JOBS}{rpc}"
        try:
            if rpc.endswith("Stream"):
                *_, answer = self._channel.unary_stream(name)(coded, timeout=60.0)
            else:
                answer = self._channel.unary_unary(name)(coded, timeout=60.0)
            assert isinstance(answer, bytes)
            return answer
        except grpc.RpcError as error:
            self._check(error)
            return None

    def stage(self, coded: list[bytes]) -> None:
        try:
            list(self._channel.stream_stream(STAGING)(iter(coded), timeout=60.0))
        except grpc.RpcError as error:
            self._check(error)

    def _check(self, error: Any) -> None:
        assert error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, error
        assert error.code() is not grpc.StatusCode.UNKNOWN, error
        if error.code() is grpc.StatusCode.INTERNAL:  # gRPC's own word for bytes of no message
            assert error.details() == "Exception deserializing request!", error
        self.refusals.add(error.code())

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    config = ServerConfig(
        job_port=0, artifact_port=0, artifacts_dir=str(tmp_path), max_waiting_jobs=10 * MESSAGES
    )
    with served(config) as (jobs, gate):
        gate.let_through(10 * MESSAGES)
        api = JobApi(config, jobs)
        client = Client(api.url)
        yield client
        client.close()
        api.stop()
    assert not any(tmp_path.iterdir())


def test_pipelines_and_options(client: Client) -> None:
    random_ = random.Random(0)
    valid = request(everything)
    valid.pipeline_options.update(
        {"beam:option:parallelism:v1": "3", "beam:option:drain:v1": True, "other": [1, {"a": None}]}
    )
    ran = 0
    for _ in range(MESSAGES):
        if (answer := client.call("Prepare", mutated(valid, random_))) is None:
            continue
        id_ = beam_job_api_pb2.PrepareJobResponse.FromString(answer).preparation_id
        run = beam_job_api_pb2.RunJobRequest(preparation_id=id_)
        if (answer := client.call("Run", run.SerializeToString())) is None:
            continue
        ran += 1
        job_id = beam_job_api_pb2.RunJobResponse.FromString(answer).job_id
        asked = beam_job_api_pb2.GetJobStateRequest(job_id=job_id).SerializeToString()
        last = client.call("GetStateStream", asked)
        assert last is not None
        event = beam_job_api_pb2.JobStateEvent.FromString(last)
        assert event.state == beam_job_api_pb2.JobState.FAILED  # there is no Spark
    assert ran > MESSAGES // 10
    assert {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED} <= client.refusals


def test_ids_and_files(client: Client) -> None:
    random_ = random.Random(0)
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt"))
    prepared = client.call("Prepare", wanted.SerializeToString())
    assert prepared is not None
    token = beam_job_api_pb2.PrepareJobResponse.FromString(prepared).staging_session_token
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
    resolved = beam_artifact_api_pb2.ResolveArtifactsResponse(
        replacements=[artifact("a.txt"), artifact("b.txt")]
    )
    piece = beam_artifact_api_pb2.GetArtifactResponse(data=b"abc")
    staged = [
        wrapper(staging_token=token),
        wrapper(resolve_artifact_response=resolved),
        wrapper(get_artifact_response=piece),
        wrapper(get_artifact_response=piece, is_last=True),
    ]
    run = beam_job_api_pb2.RunJobRequest(preparation_id=token).SerializeToString()
    assert client.call("Run", run) is None
    for rpc in itertools.islice(itertools.cycle(BY_ID), MESSAGES // 2):
        client.call(rpc, mutated(BY_ID[rpc](job_id=token), random_))
    for _ in range(MESSAGES // 2):
        client.stage([mutated(each, random_) for each in staged])
    client.stage([each.SerializeToString() for each in staged[:2] + staged[3:] * 2])
    assert client.call("Run", run) is not None

"""Services that SDK harnesses call: strangers, state that nobody has, floods of log lines."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    beam_runner_api_pb2,
)

from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from tests.harness.faults import Scripted, ask_state, echo, run_one
from tests.harness.scripted_sdk import ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


def calls(channel: Any, metadata: Any) -> Iterator[Any]:
    """One call of each method, as a stranger makes it."""
    control = beam_fn_api_pb2_grpc.BeamFnControlStub(channel)
    yield control.Control(iter(()), metadata=metadata)
    yield beam_fn_api_pb2_grpc.BeamFnDataStub(channel).Data(iter(()), metadata=metadata)
    yield beam_fn_api_pb2_grpc.BeamFnStateStub(channel).State(iter(()), metadata=metadata)
    yield beam_fn_api_pb2_grpc.BeamFnLoggingStub(channel).Logging(iter(()), metadata=metadata)
    status = beam_fn_api_pb2_grpc.BeamFnWorkerStatusStub(channel)
    yield status.WorkerStatus(iter(()), metadata=metadata)
    artifacts = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
    yield artifacts.GetArtifact(beam_artifact_api_pb2.GetArtifactRequest(), metadata=metadata)
    yield lambda: artifacts.ResolveArtifacts(
        beam_artifact_api_pb2.ResolveArtifactsRequest(), metadata=metadata
    )
    yield lambda: control.GetProcessBundleDescriptor(
        beam_fn_api_pb2.GetProcessBundleDescriptorRequest(), metadata=metadata
    )
    yield lambda: beam_provision_api_pb2_grpc.ProvisionServiceStub(channel).GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(), metadata=metadata
    )


@pytest.mark.parametrize("lie", ["nothing", "a wrong id", "the name without the secret"])
def test_strangers_are_turned_away_by_every_service(scripted: Scripted, lie: str) -> None:
    pool = scripted(echo)
    run_one(pool, [b"a"])
    server = sdk_harnesses._server
    assert server is not None
    worker_id = pool.sdks[0].metadata[0][1]
    malformed = {
        "nothing": [],
        "a wrong id": [("worker_id", worker_id[:-1] + "x")],
        "the name without the secret": [("worker_id", worker_id.rpartition("-")[0])],
    }[lie]
    with grpc.insecure_channel(server.url) as channel:
        for call in calls(channel, malformed):
            with pytest.raises(grpc.RpcError) as raised:
                call() if callable(call) else list(call)
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert run_one(pool, [b"b"]).values == [b"b"]


def test_a_descriptor_is_there_for_who_knows_its_id(scripted: Scripted) -> None:
    """The TypeScript SDK asks for it without saying who it is."""
    asked: list[Any] = []

    def ask(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        wanted = beam_fn_api_pb2.GetProcessBundleDescriptorRequest(
            process_bundle_descriptor_id=descriptor.id
        )
        asked.append((sdk.control_stub.GetProcessBundleDescriptor(wanted), descriptor))
        for block in sdk.input_blocks(instruction):
            sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)

    assert run_one(scripted(ask), [b"a"]).values == [b"a"]
    ((found, descriptor),) = asked
    assert found == descriptor


def test_a_second_stream_of_a_kind_is_refused(scripted: Scripted) -> None:
    codes = []

    def twice(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        blocks = list(sdk.input_blocks(instruction))
        # Something has come by both streams: the runner has them for sure.
        for method in (
            sdk.control_stub.Control,
            beam_fn_api_pb2_grpc.BeamFnDataStub(sdk.channel).Data,
        ):
            try:
                list(method(iter(()), metadata=sdk.metadata))
            except grpc.RpcError as error:
                codes.append(error.code())
        for block in blocks:
            sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)

    assert run_one(scripted(twice), [b"a"]).values == [b"a"]
    assert codes == [grpc.StatusCode.ALREADY_EXISTS] * 2


def test_artifacts_are_those_of_the_environment_only(scripted: Scripted, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    pool = scripted(echo)
    run_one(pool, [b"a"])
    sdk = pool.sdks[0]
    artifacts = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(sdk.channel)
    payload = beam_runner_api_pb2.ArtifactFilePayload(path=str(secret))
    wanted = beam_runner_api_pb2.ArtifactInformation(
        type_urn="beam:artifact:type:file:v1", type_payload=payload.SerializeToString()
    )
    request = beam_artifact_api_pb2.GetArtifactRequest(artifact=wanted)
    with pytest.raises(grpc.RpcError) as raised:
        list(artifacts.GetArtifact(request, metadata=sdk.metadata))
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_state_that_nobody_has_is_an_error_of_the_request(scripted: Scripted) -> None:
    answers: list[Any] = []

    def ask(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        key = beam_fn_api_pb2.StateKey
        side = key(iterable_side_input=key.IterableSideInput(transform_id="t", side_input_id="s"))
        get = beam_fn_api_pb2.StateGetRequest()
        append = beam_fn_api_pb2.StateAppendRequest(data=b"x")
        request = beam_fn_api_pb2.StateRequest
        answers.extend(
            ask_state(
                sdk,
                request(id="1", instruction_id=instruction, state_key=side, get=get),
                request(id="2", instruction_id="999", state_key=side, get=get),
                request(id="3", instruction_id=instruction, state_key=side, append=append),
                request(id="4", instruction_id=instruction, get=get),
                request(
                    id="5",
                    instruction_id=instruction,
                    state_key=key(runner=key.Runner(key=b"group-1")),
                    get=beam_fn_api_pb2.StateGetRequest(continuation_token=b"!"),
                ),
            )
        )
        for block in sdk.input_blocks(instruction):
            sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)

    assert run_one(scripted(ask), [b"a"]).values == [b"a"]
    assert [answer.id for answer in answers] == ["1", "2", "3", "4", "5"]
    words = ["side input 's'", "no bundle '999'", "wrote state", "kind None", "no continuation"]
    for answer, word in zip(answers, words, strict=True):
        assert word in answer.error


def test_a_flood_of_log_lines_is_cut_with_a_count(
    scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = scripted(echo)
    run_one(pool, [b"a"])
    sdk = pool.sdks[0]
    entry = beam_fn_api_pb2.LogEntry(
        severity=beam_fn_api_pb2.LogEntry.Severity.ERROR, message="oh", transform_id="t"
    )
    entries = beam_fn_api_pb2.LogEntry.List(log_entries=[entry] * 1000)
    stub = beam_fn_api_pb2_grpc.BeamFnLoggingStub(sdk.channel)
    list(stub.Logging(iter([entries] * 30), metadata=sdk.metadata))
    texts = capsys.readouterr().err.splitlines()
    lines = texts.count("ERROR: oh [t]")
    left_out = sum(int(text.split()[0]) for text in texts if "were dropped" in text)
    assert lines + left_out == 30_000
    assert 1_000 <= lines < 3_000

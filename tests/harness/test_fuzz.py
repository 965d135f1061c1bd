"""Harnesses that send anything at all: no crash, no hang, and the next one is served."""

import os
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_spark_runner.core.errors import HarnessError
from beam_spark_runner.harness.remote import bundle_messages, bundle_progress, remote_bundle
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.portable.monitoring import element_counts, merge, to_metric_results
from tests.harness.any_messages import (
    answers,
    artifacts,
    elements,
    logs,
    requests,
    responses,
    statuses,
)
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.faults import echo, run_one
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of
from tests.stateful import Keeps

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(600)]

Message = tuple[str, Any]
messages = st.one_of(
    *(
        st.tuples(st.just(kind), message)
        for kind, message in (
            ("data", elements),
            ("control", responses),
            ("state", requests),
            ("log", logs),
            ("status", statuses),
            ("artifact", artifacts),
        )
    )
)


def send(sdk: ScriptedSdk, said: list[Message]) -> None:
    """Say it all about the first bundle, then leave."""
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    sink = sink_of(descriptor)
    step = next(id_ for id_, each in descriptor.transforms.items() if "pardo" in each.spec.urn)

    def ours(message: Any) -> Any:
        for part in (*getattr(message, "data", ()), *getattr(message, "timers", ()), message):
            if getattr(part, "instruction_id", "") == "OURS":
                part.instruction_id = instruction
            if getattr(part, "transform_id", "") == "SINK":
                part.transform_id = sink
            if getattr(part, "transform_id", "") == "STEP":
                part.transform_id = step
        key = getattr(message, "state_key", None)
        kind = key and key.WhichOneof("type")
        if kind and getattr(getattr(key, kind), "transform_id", "") == "STEP":
            getattr(key, kind).transform_id = step
        return message

    states = [ours(message) for kind, message in said if kind == "state"]
    stub = beam_fn_api_pb2_grpc.BeamFnStateStub(sdk.channel)
    answers = list(stub.State(iter(states), metadata=sdk.metadata))
    assert [answer.id for answer in answers] == [request.id for request in states]
    logging = beam_fn_api_pb2_grpc.BeamFnLoggingStub(sdk.channel)
    list(
        logging.Logging(
            iter([message for kind, message in said if kind == "log"]), metadata=sdk.metadata
        )
    )
    ask_for(sdk, [message for kind, message in said if kind == "artifact"])
    sdk.open_status()
    for kind, message in said:
        if kind == "status":
            sdk.tell_status(message)
        elif kind == "data":
            sdk.put_elements(ours(message))
        elif kind == "control":
            sdk._control.put(ours(message))
    sdk.end_data()
    sdk.end_control()


def ask_for(sdk: ScriptedSdk, wanted: list[Any]) -> None:
    """Ask for files, of which the environment has none."""
    stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(sdk.channel)
    request = beam_artifact_api_pb2.ResolveArtifactsRequest(artifacts=wanted)
    assert list(stub.ResolveArtifacts(request, metadata=sdk.metadata).replacements) == wanted
    for artifact in wanted:
        get = beam_artifact_api_pb2.GetArtifactRequest(artifact=artifact)
        call = stub.GetArtifact(get, metadata=sdk.metadata)
        assert call.code() is grpc.StatusCode.NOT_FOUND


def keyed_step(pipeline: beam.Pipeline) -> Any:
    """Stage 1 is a step with state and timers."""
    pair = beam.Map(lambda x: (x, x)).with_output_types(tuple[bytes, bytes])
    step = beam.ParDo(Keeps()).with_output_types(bytes)
    return pipeline | beam.Impulse() | pair | "step" >> step | beam.Reshuffle()


def read_metrics(infos: tuple[bytes, ...]) -> None:
    """Merge metrics as tasks and the driver do, and show them to a user."""
    merged = merge((*infos, *merge(infos)))
    element_counts(merged)
    to_metric_results(merged, step_names={}, user_metrics_only=False).query()


MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "800"))
PER_HARNESS = 40


@settings(
    max_examples=MESSAGES // PER_HARNESS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(said=st.lists(messages, min_size=PER_HARNESS, max_size=PER_HARNESS), is_keyed=st.booleans())
def test_a_harness_that_sends_anything(
    said: list[Message], is_keyed: bool, fuzzed: Callable[[list[Message]], Pool]
) -> None:
    pool = fuzzed(said)
    stage = stage_on(pool.url, keyed_step if is_keyed else one_step, stage=int(is_keyed))
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    try:
        bundle.push([(b"k", b"a") if is_keyed else b"a"], [BARE])
        bundle.advance_key()
        for kept in list(sdk_harnesses._entries.values()):
            kept.worker.connection.status.ask(0.01)
        read_metrics(bundle.finish().monitoring_infos)
    except HarnessError:
        bundle.abort()


Script = Callable[[ScriptedSdk], None]


def pool_for_examples(
    scripted: Callable[[Script], Pool], act: Callable[[ScriptedSdk, list[Any]], None]
) -> Callable[[list[Any]], Pool]:
    """One pool for all examples; each harness does what the example that was set last says."""
    current: list[list[Any]] = []
    pool = scripted(lambda sdk: act(sdk, current[-1]))

    def set_current(example: list[Any]) -> Pool:
        current.append(example)
        return pool

    return set_current


@pytest.fixture
def fuzzed(
    scripted: Callable[[Script], Pool], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[Message]], Pool]:
    monkeypatch.setattr(bundle_messages, "_SILENCE_S", 0.3)
    monkeypatch.setattr(bundle_messages, "_MAX_SILENCES", 1)
    monkeypatch.setattr(remote_bundle, "_LAST_LINES_S", 0.01)
    return pool_for_examples(scripted, send)


def answer_requests(sdk: ScriptedSdk, given: list[Any]) -> None:
    """Do one bundle as one should, but answer all that is asked about it with what is given."""
    sdk.connect()
    bundle, descriptor = sdk.next_bundle()
    for number, answer in enumerate(given):
        if number == 2:
            list(sdk.input_blocks(bundle))
            sdk.send(bundle, sink_of(descriptor), is_last=True)
            response = beam_fn_api_pb2.ProcessBundleResponse(requires_finalization=True)
            response.monitoring_infos.extend(answer.process_bundle_progress.monitoring_infos)
            sdk.respond(bundle, process_bundle=response)
        request = next(sdk.instructions)
        if answer.instruction_id == "OURS":
            answer.instruction_id = request.instruction_id
        sdk._control.put(answer)
    sdk.end_control()


@settings(max_examples=MESSAGES // PER_HARNESS, deadline=None, suppress_health_check=[*HealthCheck])
@given(given_answers=st.lists(answers, min_size=3, max_size=3))
def test_a_harness_that_answers_anything(
    given_answers: list[Any], answered: Callable[[list[Any]], Pool]
) -> None:
    """To requests for progress, for a split, and to finalize.

    Never for an earlier request in their place: a split is waited for, two minutes long.
    """
    stage = stage_on(answered(given_answers).url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    try:
        bundle.push([b"a"], [BARE])
        bundle.flush()
        bundle.progress()
        bundle.split(0.5)
        result = bundle.finish()
        read_metrics(result.monitoring_infos)
        for each in result.callbacks:
            each.run()
    except HarnessError:
        bundle.abort()


@pytest.fixture
def answered(
    scripted: Callable[[Script], Pool], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[Any]], Pool]:
    monkeypatch.setattr(bundle_messages, "_SILENCE_S", 0.3)
    monkeypatch.setattr(bundle_messages, "_MAX_SILENCES", 1)
    monkeypatch.setattr(remote_bundle, "_LAST_LINES_S", 0.01)
    monkeypatch.setattr(bundle_progress, "_TIMEOUT_S", 0.3)
    set_current = pool_for_examples(scripted, answer_requests)

    def with_a_new_harness(given: list[Any]) -> Pool:
        sdk_harnesses.stop()
        return set_current(given)

    return with_a_new_harness


def test_calls_that_are_no_messages(scripted: Any) -> None:
    """Bytes that do not parse are refused by gRPC, and end that call only."""
    pool = scripted(echo)
    run_one(pool, [b"a"])
    sdk = pool.sdks[0]
    name = "/org.apache.beam.model.fn_execution.v1.BeamFnState/State"
    call = sdk.channel.stream_stream(name)(iter([b"\xff\xff\xff"]), metadata=sdk.metadata)
    with pytest.raises(grpc.RpcError):
        list(call)
    assert run_one(pool, [b"b"]).values == [b"b"]

"""SDK harnesses that break the protocol, or their streams: a typed error, and soon."""

import errno
import itertools
import threading
import time
from collections.abc import Callable, Iterator
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

from beam_spark_runner.core.errors import (
    BundleFailedError,
    EnvironmentStartError,
    FnApiProtocolError,
    HarnessStreamError,
    SdkDisconnectedError,
)
from beam_spark_runner.harness.fn_api.services import inbox
from beam_spark_runner.harness.fn_api.services.data import DataStream
from beam_spark_runner.harness.remote import bundle as remote_bundle
from beam_spark_runner.harness.remote.sdk_workers import sdk_workers
from beam_spark_runner.state.spill import SpillFile
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60)]

Scripted = Callable[[Callable[[ScriptedSdk], None]], Pool]
SOON_S = 28.0
"""Less than the time that a harness has to start, unless a test says otherwise."""


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_bundle, "_SILENCE_S", 0.5)


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < SOON_S


def run_one(pool: Pool, values: list[bytes], *, start_timeout_s: float = 30) -> Collected:
    stage = stage_on(pool.url, one_step, start_timeout_s=start_timeout_s)
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    try:
        bundle.push(values, [BARE] * len(values))
        bundle.finish()
    except BaseException:
        bundle.abort()
        raise
    return collected


def echo(sdk: ScriptedSdk) -> None:
    """Do what an SDK does."""
    sdk.connect()
    while True:
        instruction, descriptor = sdk.next_bundle()
        for block in sdk.input_blocks(instruction):
            sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)


def test_a_harness_that_keeps_to_the_protocol(scripted: Scripted) -> None:
    assert run_one(scripted(echo), [b"a", b"b"]).values == [b"a", b"b"]


def test_a_harness_that_never_connects(scripted: Scripted) -> None:
    with pytest.raises(EnvironmentStartError, match=r"5 s \(--environment_start_timeout\)"):
        run_one(scripted(lambda sdk: None), [b"a"], start_timeout_s=5)


def test_a_pool_that_nobody_runs() -> None:
    stage = stage_on("127.0.0.1:1", one_step, start_timeout_s=1)
    with pytest.raises(EnvironmentStartError, match=r"no worker pool answers at 127\.0\.0\.1:1 "):
        stage.start_bundle({}, {})


class SlowPool(Pool):
    def StartWorker(self, request: Any, context: Any) -> Any:
        time.sleep(3)
        return super().StartWorker(request, context)


def test_a_slow_pool_and_its_harness_share_one_deadline() -> None:
    pool = SlowPool(lambda sdk: None)
    stage = stage_on(pool.url, one_step, start_timeout_s=5)
    began = time.monotonic()
    with pytest.raises(EnvironmentStartError, match=r"5 s \(--environment_start_timeout\)"):
        stage.start_bundle({}, {})
    assert 5 <= time.monotonic() - began < 5 + 3  # else it had five seconds more
    sdk_workers.stop()
    pool.close()


def drop_control(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.end_control()
    sdk.instructions.cancel()


def end_control(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.end_control()


def drop_data(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.elements.cancel()


def end_data(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.end_data()


def drop_all(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.channel.close()


@pytest.mark.parametrize("script", [drop_control, end_control, drop_data, end_data, drop_all])
def test_a_stream_that_is_cut(scripted: Scripted, script: Callable[[ScriptedSdk], None]) -> None:
    with pytest.raises(SdkDisconnectedError, match="stream"):
        run_one(scripted(script), [b"a"])


def answer_a_stranger(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.respond("12345")


def send_a_strangers_data(sdk: ScriptedSdk) -> None:
    sdk.connect()
    _, descriptor = sdk.next_bundle()
    sdk.send("12345", sink_of(descriptor), b"x")


def send_to_no_sink(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    sdk.send(instruction, "no sink", b"x")


def send_nonsense(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    sdk.send(instruction, sink_of(descriptor), b"\xff" * 7)


def send_half_an_element(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    (block,) = sdk.input_blocks(instruction)
    sdk.send(instruction, sink_of(descriptor), block[:-1])


def say_nothing_more(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.respond(instruction)


def answer_something_else(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.send(instruction, sink_of(descriptor), is_last=True)
    sdk.respond(instruction, finalize_bundle=beam_fn_api_pb2.FinalizeBundleResponse())


def set_a_timer(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    timers = beam_fn_api_pb2.Elements.Timers(
        instruction_id=instruction, transform_id="t", timers=b"1"
    )
    sdk.put_elements(beam_fn_api_pb2.Elements(timers=[timers]))


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (answer_a_stranger, "'12345', which nobody sent"),
        (send_a_strangers_data, "'12345', which nobody sent"),
        (send_to_no_sink, "output of no sink"),
        (send_nonsense, "bytes that are no elements"),
        (send_half_an_element, "bytes that are no elements"),
        (say_nothing_more, "nothing came on the data stream"),
        (answer_something_else, "finalize_bundle"),
        (set_a_timer, "no timers of that family"),
    ],
)
def test_what_the_fn_api_does_not_allow(
    scripted: Scripted, script: Callable[[ScriptedSdk], None], words: str
) -> None:
    with pytest.raises(FnApiProtocolError) as raised:
        run_one(scripted(script), [b"a"])
    assert words in str(raised.value)
    assert str(raised.value).startswith("step: ")


LONG_ID = "9" * 5_000
"""Python refuses to make a number of it."""


def answer_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.respond(LONG_ID)


def send_data_for_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect()
    _, descriptor = sdk.next_bundle()
    sdk.send(LONG_ID, sink_of(descriptor), b"x")


def send_timers_for_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    timers = beam_fn_api_pb2.Elements.Timers(instruction_id=LONG_ID, timers=b"1")
    sdk.put_elements(beam_fn_api_pb2.Elements(timers=[timers]))


@pytest.mark.parametrize(
    "script",
    [
        answer_an_id_of_many_digits,
        send_data_for_an_id_of_many_digits,
        send_timers_for_an_id_of_many_digits,
    ],
)
def test_an_id_of_many_digits(scripted: Scripted, script: Callable[[ScriptedSdk], None]) -> None:
    with pytest.raises(
        FnApiProtocolError, match=r"step: .* instruction '9{20,99}, which nobody sent"
    ):
        run_one(scripted(script), [b"a"])


def full_disk(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_is_full_when_outputs_are_to_wait_there(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flood(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        sdk.next_bundle()  # while several are under way, the stream must not wait for one
        for _ in range(50):
            sdk.send(instruction, sink_of(descriptor), b"x" * 500)
        list(sdk.elements)

    monkeypatch.setattr(inbox, "LIMIT_BYTES", 1_000)
    monkeypatch.setattr(SpillFile, "append", full_disk)
    stage = stage_on(scripted(flood).url, one_step)
    bundles = [
        stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {}) for _ in "12"
    ]
    time.sleep(0.5)
    with pytest.raises(
        HarnessStreamError, match=r"step: .*data stream: OSError: .*No space left.* in /"
    ) as raised:
        bundles[1].finish()
    assert isinstance(raised.value.__cause__, OSError)
    for bundle in bundles:
        bundle.abort()


def test_an_answer_that_cannot_be_taken(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataStream, "put", full_disk)
    with pytest.raises(
        HarnessStreamError, match=r"step: .*control stream: OSError: .*No space left"
    ):
        run_one(scripted(echo), [b"a"])


def take_a_bundle_and_sleep(sdk: ScriptedSdk) -> None:
    next(sdk.connect().instructions)
    list(sdk.instructions)


@pytest.mark.usefixtures("short_silence")
def test_a_harness_that_opens_no_data_stream(scripted: Scripted) -> None:
    problem = r"no data stream within 4 s \(--environment_start_timeout\)"
    with pytest.raises(EnvironmentStartError, match=problem):
        run_one(scripted(take_a_bundle_and_sleep), [b"a"], start_timeout_s=4)


def test_a_harness_that_does_not_answer_to_a_split(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has left is not known: the bundle must not succeed."""
    monkeypatch.setattr(remote_bundle, "_SPLIT_TIMEOUT_S", 0.5)

    def ignore_splits(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        next(sdk.instructions)
        sdk.respond(instruction)
        list(sdk.instructions)

    stage = stage_on(scripted(ignore_splits).url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    with pytest.raises(FnApiProtocolError, match=r"step: .* split .* within 0\.5 s"):
        bundle.split(0.5)
    bundle.abort()


def test_a_loss_names_all_steps_that_the_harness_has_in_hand(scripted: Scripted) -> None:
    """Whichever of them ended it, and whoever hears of it first."""

    def take_two_and_go(sdk: ScriptedSdk) -> None:
        sdk.connect().next_bundle()
        sdk.next_bundle()
        sdk.end_control()

    url = scripted(take_two_and_go).url
    stages = [stage_on(url, one_step, stage=number) for number in (0, 1)]
    bundles = [
        stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {}) for stage in stages
    ]
    with pytest.raises(SdkDisconnectedError, match=r"^step, .*end: .* closed its control stream"):
        bundles[0].finish()
    for bundle in bundles:
        bundle.abort()


def split_at(last: int, first: int) -> Callable[[ScriptedSdk], None]:
    def answer(sdk: ScriptedSdk) -> None:
        sdk.connect().next_bundle()
        request = next(sdk.instructions)
        split = beam_fn_api_pb2.ProcessBundleSplitResponse()
        split.channel_splits.add(last_primary_element=last, first_residual_element=first)
        sdk.respond(request.instruction_id, process_bundle_split=split)
        list(sdk.instructions)

    return answer


def split_of_three(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Push three elements, and return those that a split gives back."""
    stage = stage_on(pool.url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    monkeypatch.setattr(bundle, "_is_splittable", True)
    bundle.push([b"a", b"b", b"c"], [BARE] * 3)
    try:
        given_back = bundle.split(0.5)
    finally:
        bundle.abort()
    return [each.application.element[-1:] for each in given_back]


@pytest.mark.parametrize(
    ("last", "first", "given_back"),
    [(1, 2, [b"c"]), (0, 2, [b"c"]), (-1, 0, [b"a", b"b", b"c"]), (2, 3, [])],
)
def test_a_split_gives_back_what_is_not_begun(
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    last: int,
    first: int,
    given_back: list[bytes],
) -> None:
    assert split_of_three(scripted(split_at(last, first)), monkeypatch) == given_back


@pytest.mark.parametrize(
    ("last", "first"), [(-2, -1), (0, -1), (3, 4), (0, 3), (1, 1), (2, 1), (-(1 << 63), 1 << 62)]
)
def test_a_split_at_elements_that_are_not_there(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, last: int, first: int
) -> None:
    """What is done and what is left is not known: the bundle must not succeed."""
    with pytest.raises(FnApiProtocolError, match=rf"step: .* up to number {last} .* of 3"):
        split_of_three(scripted(split_at(last, first)), monkeypatch)


@pytest.mark.usefixtures("short_silence")
def test_a_harness_that_does_not_take_its_input(scripted: Scripted) -> None:
    stage = stage_on(scripted(take_a_bundle_and_sleep).url, one_step, start_timeout_s=4)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    megabytes = [b"x" * (1 << 20)] * 10
    bundle.push(megabytes, [BARE] * 10)  # as much as may wait
    with pytest.raises(EnvironmentStartError, match="no data stream within 4 s"):
        bundle.push(megabytes, [BARE] * 10)
    bundle.abort()


def set_up_for_long(sdk: ScriptedSdk) -> None:
    """Answer what is asked, and open the data stream late."""
    sdk.connect()
    bundle = next(sdk.instructions)
    until = time.monotonic() + 7
    while time.monotonic() < until:
        request = next(sdk.instructions)
        sdk.respond(request.instruction_id, "no such bundle yet")
    sdk.open_data()
    (step,) = {
        data.transform_id
        for elements in itertools.islice(sdk.elements, 1)
        for data in elements.data
    }
    assert step
    sdk.respond(bundle.instruction_id, "boom")


@pytest.mark.usefixtures("short_silence")
def test_a_harness_that_answers_may_set_up_for_long(scripted: Scripted) -> None:
    with pytest.raises(BundleFailedError, match="boom"):
        run_one(scripted(set_up_for_long), [b"a"], start_timeout_s=3)


def test_a_harness_that_does_not_come_holds_nobody_else_up(scripted: Scripted) -> None:
    """Neither those who want another, nor those who give one back."""
    missing, there = scripted(lambda sdk: None), scripted(echo)
    stage = stage_on(missing.url, one_step, start_timeout_s=5)
    failed: list[BaseException] = []

    def wait_in_vain() -> None:
        try:
            stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
        except EnvironmentStartError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    while not missing.sdks:
        time.sleep(0.01)
    assert run_one(there, [b"a"]).values == [b"a"]
    assert waiting.is_alive()
    sdk_workers.stop()  # nor whoever ends it all
    waiting.join()
    assert len(failed) == 1


def describe_itself(sdk: ScriptedSdk) -> None:
    """Process a bundle, but not at once, and answer when it is asked what it does."""
    sdk.connect()
    sdk.open_status()
    instruction, descriptor = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.tell_status(
        beam_fn_api_pb2.WorkerStatusResponse(id=next(sdk.asked).id, status_info="thinks hard")
    )
    sdk.send(instruction, sink_of(descriptor), is_last=True)
    sdk.respond(instruction)


@pytest.mark.usefixtures("short_silence")
def test_a_harness_that_is_silent_is_asked_what_it_does(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote_bundle, "_LONG_SILENCE_S", 1.0)
    assert run_one(scripted(describe_itself), [b"a"]).values == []
    (line,) = (each.getMessage() for each in caplog.records if "Its status" in each.getMessage())
    assert "the SDK harness has sent nothing for 1 s" in line
    assert line.endswith("thinks hard")


def test_the_next_bundle_gets_a_harness_that_works(scripted: Scripted) -> None:
    scripts = iter([drop_control, echo])
    pool = scripted(lambda sdk: next(scripts)(sdk))
    with pytest.raises(SdkDisconnectedError):
        run_one(pool, [b"a"])
    assert run_one(pool, [b"b"]).values == [b"b"]
    assert len(pool.sdks) == 2


def test_a_bundle_that_fails_leaves_the_harness_for_the_next(scripted: Scripted) -> None:
    def fail_once(sdk: ScriptedSdk) -> None:
        sdk.connect()
        first, _ = sdk.next_bundle()
        sdk.respond(first, "Traceback\nValueError: boom [while running 'step']")
        second, descriptor = sdk.next_bundle()
        sdk.send(first, "late", b"x", is_last=True)  # nobody's any more
        sdk.respond(first, "once more")
        for block in sdk.input_blocks(second):
            sdk.send(second, sink_of(descriptor), block)
        sdk.send(second, sink_of(descriptor), is_last=True)
        sdk.respond(second)

    pool = scripted(fail_once)
    with pytest.raises(BundleFailedError, match="ValueError: boom"):
        run_one(pool, [b"a"])
    assert run_one(pool, [b"b"]).values == [b"b"]
    assert len(pool.sdks) == 1


def echo_on(sdk: ScriptedSdk) -> None:
    sdk.connect = lambda: sdk  # type: ignore[method-assign]
    echo(sdk)


def test_an_aborted_bundle_ends_its_harness(scripted: Scripted) -> None:
    ended = threading.Event()

    def wait(sdk: ScriptedSdk) -> None:
        # The bundle may be gone before the script has asked for its descriptor.
        try:
            sdk.connect().next_bundle()
            next(sdk.instructions)
        except (StopIteration, grpc.RpcError):
            ended.set()

    pool = scripted(wait)
    stage = stage_on(pool.url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    bundle.push([b"a"], [BARE])
    bundle.flush()
    bundle.abort()
    assert ended.wait(5)
    assert pool.stopped == [pool.sdks[0].metadata[0][1]]


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
    server = sdk_workers._server
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


def ask_state(sdk: ScriptedSdk, *requests: Any) -> list[Any]:
    stub = beam_fn_api_pb2_grpc.BeamFnStateStub(sdk.channel)
    return list(stub.State(iter(requests), metadata=sdk.metadata))


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
    left_out = sum(int(text.split()[0]) for text in texts if "were left out" in text)
    assert lines + left_out == 30_000
    assert 1_000 <= lines < 3_000

"""SDK harnesses that say nothing: busy, or gone."""

import itertools
import threading
import time

import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2,
)

from beam_spark_runner.core.errors import (
    BundleFailedError,
    EnvironmentStartError,
    FnApiProtocolError,
    SdkDisconnectedError,
    StuckBundleError,
)
from beam_spark_runner.harness.bundle import IDLE
from beam_spark_runner.harness.remote import bundle_messages, remote_bundle
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from tests.harness.conftest import Collected, one_step, stage_on
from tests.harness.faults import Scripted, echo, run_one, take_a_bundle_and_sleep
from tests.harness.scripted_sdk import ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


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


def test_outputs_may_come_long_after_the_answer(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large element takes a slow harness a while."""
    monkeypatch.setattr(bundle_messages, "_SILENCE_S", 0.01)
    monkeypatch.setattr(bundle_messages, "_MAX_SILENCES", 1_000_000)
    silence = threading.Event()
    note_silence = bundle_messages.Exchange._note_silence

    def note(exchange: bundle_messages.Exchange) -> None:
        note_silence(exchange)
        if exchange._protocol.awaits_outputs_only:
            silence.set()

    monkeypatch.setattr(bundle_messages.Exchange, "_note_silence", note)

    def send_late(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        (block,) = sdk.input_blocks(instruction)
        sdk.respond(instruction)
        assert silence.wait(60)
        sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        list(sdk.instructions)

    assert run_one(scripted(send_late), [b"a"]).values == [b"a"]


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
    sdk_harnesses.stop()  # nor whoever ends it all
    waiting.join()
    assert len(failed) == 1


def describe_itself(sdk: ScriptedSdk) -> None:
    """Never process a bundle, but answer when it is asked what it does."""
    sdk.connect()
    sdk.open_status()
    instruction, _ = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.tell_status(
        beam_fn_api_pb2.WorkerStatusResponse(id=next(sdk.asked).id, status_info="thinks hard")
    )
    list(sdk.instructions)


def test_a_bundle_that_waits_for_its_harness_says_so_and_can_be_given_up(
    scripted: Scripted,
) -> None:
    """Its step is known, its status is the harness's; what ends it is the error that it gets."""
    pool = scripted(describe_itself)
    stage = stage_on(pool.url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    assert bundle.activity() == IDLE  # nothing was pushed: it is the runner that is waited for
    raised: list[BaseException] = []

    def finish() -> None:
        try:
            bundle.finish()
        except StuckBundleError as error:
            raised.append(error)
        finally:
            bundle.abort()

    waiting = threading.Thread(target=finish)
    waiting.start()
    while bundle.activity() == IDLE:
        time.sleep(0.01)
    assert bundle.activity() == bundle.activity()
    assert bundle.activity().step == "step"
    assert bundle.status() == "thinks hard"
    error = StuckBundleError("step", 1, "")
    assert bundle.give_up(error)
    waiting.join(60)
    assert raised == [error]
    assert pool.stopped == [pool.sdks[0].metadata[0][1]]  # nothing else ends its user code

"""Callbacks of bundles in a harness that does not answer keep neither it nor a thread."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.harness.remote import finalization as callbacks_module
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.faults import Scripted
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]

SOON_S = 30.0


def finalizing(answer: Callable[[ScriptedSdk, Any], None]) -> Callable[[ScriptedSdk], None]:
    """A harness whose bundles have callbacks, about which ``answer`` decides."""

    def run(sdk: ScriptedSdk) -> None:
        sdk.connect()
        for _ in range(2):
            instruction, descriptor = sdk.next_bundle()
            for block in sdk.input_blocks(instruction):
                sdk.send(instruction, sink_of(descriptor), block)
            sdk.send(instruction, sink_of(descriptor), is_last=True)
            response = beam_fn_api_pb2.ProcessBundleResponse(requires_finalization=True)
            sdk.respond(instruction, process_bundle=response)
        for request in sdk.instructions:
            answer(sdk, request)

    return run


def bundles_of(pool: Pool) -> list[Callbacks]:
    stage = stage_on(pool.url, one_step)
    found = []
    for _ in range(2):
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
        bundle.push([b"a"], [BARE])
        (callbacks,) = bundle.finish().callbacks
        found.append(callbacks)
    return found


def users() -> list[int]:
    return [each.users for each in sdk_harnesses._entries.values()]


def test_a_harness_that_never_answers_is_waited_for_once(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callbacks_module, "_ANSWERS_WITHIN_S", 0.1)
    asked = []
    pool = scripted(finalizing(lambda _, request: asked.append(request)))
    first, second = bundles_of(pool)
    assert users() == [2]
    first.run()
    assert users() == [1]  # it is released
    monkeypatch.setattr(callbacks_module, "_ANSWERS_WITHIN_S", 1e9)
    second.run()
    assert users() == [0]
    late, not_waited_for = [
        each.getMessage() for each in caplog.records if "callbacks" in each.getMessage()
    ]
    assert late.endswith("callbacks of a bundle have not returned within 0.1 s in the SDK harness")
    assert "step" in late
    assert not_waited_for.endswith(
        "were not waited for: the SDK harness has not answered to earlier ones"
    )


def test_a_harness_that_answers(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    def succeed(sdk: ScriptedSdk, request: Any) -> None:
        answer = beam_fn_api_pb2.FinalizeBundleResponse()
        sdk.respond(request.instruction_id, finalize_bundle=answer)

    for each in bundles_of(scripted(finalizing(succeed))):
        each.run()
    assert users() == [0]
    assert not [each for each in caplog.records if "callbacks" in each.getMessage()]


def test_a_callback_that_fails(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    def fail(sdk: ScriptedSdk, request: Any) -> None:
        sdk.respond(request.instruction_id, error="it failed")

    first, second = bundles_of(scripted(finalizing(fail)))
    first.run()
    second.drop()
    assert users() == [0]
    assert "callbacks of a bundle did not run: it failed" in caplog.text

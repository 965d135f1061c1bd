"""What bundles that fail leave for the next one."""

import threading
from contextlib import suppress

import grpc
import pytest

from beam_spark_runner.core.errors import (
    BundleFailedError,
    FnApiProtocolError,
    SdkDisconnectedError,
)
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.faults import Scripted, drop_control, echo, run_one
from tests.harness.scripted_sdk import ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


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


@pytest.mark.parametrize(
    ("sink", "block"), [(None, b"\xff"), ("unknown", b"x")], ids=["malformed", "unknown sink"]
)
def test_a_harness_that_breaks_the_protocol_is_ended(
    scripted: Scripted, sink: str | None, block: bytes
) -> None:
    """Its user code has not answered: it would run at the same time as the next attempt."""

    def send_nonsense(sdk: ScriptedSdk) -> None:
        instruction, descriptor = sdk.connect().next_bundle()
        sdk.send(instruction, sink or sink_of(descriptor), block)
        with suppress(StopIteration, grpc.RpcError):
            next(sdk.instructions)

    pool = scripted(send_nonsense)
    with pytest.raises(FnApiProtocolError):
        run_one(pool, [b"a"])
    assert pool.stopped == [pool.sdks[0].metadata[0][1]]

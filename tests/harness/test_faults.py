"""SDK harnesses that break the protocol, or their streams: a typed error, and soon."""

import errno
import time
from collections.abc import Callable
from typing import Any

import pytest

from beam_spark_runner.core.errors import (
    EnvironmentStartError,
    HarnessStreamError,
    SdkDisconnectedError,
)
from beam_spark_runner.harness.fn_api.services import inbox
from beam_spark_runner.harness.fn_api.services.data_service import DataStream
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.state.spill import SpillFile
from tests.harness.conftest import Collected, one_step, stage_on
from tests.harness.faults import Scripted, drop_control, echo, run_one
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


def test_a_harness_that_keeps_to_the_protocol(scripted: Scripted) -> None:
    assert run_one(scripted(echo), [b"a", b"b"]).values == [b"a", b"b"]


def test_a_harness_that_never_connects(scripted: Scripted) -> None:
    with pytest.raises(EnvironmentStartError, match=r"5 s \(--environment_start_timeout\)"):
        run_one(scripted(lambda sdk: None), [b"a"], start_timeout_s=5)


def test_a_pool_that_nobody_runs() -> None:
    stage = stage_on("127.0.0.1:1", one_step, start_timeout_s=1)
    named = r"^\w.*: no worker pool answers at 127\.0\.0\.1:1 "
    with pytest.raises(EnvironmentStartError, match=named):
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
    sdk_harnesses.stop()
    pool.close()


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

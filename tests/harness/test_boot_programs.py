"""What the boot program of a container logs: why its SDK does not start, or has died."""

from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beam_spark_runner.core.errors import EnvironmentStartError, SdkDisconnectedError
from tests.harness.faults import Scripted, run_one
from tests.harness.scripted_sdk import ScriptedSdk

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]

_Severity = beam_fn_api_pb2.LogEntry.Severity


def log(sdk: ScriptedSdk, severity: Any, *messages: str) -> None:
    """Log as Beam's Go tools do: each line by itself, and without a place in a program."""
    entries = [beam_fn_api_pb2.LogEntry(severity=severity, message=each) for each in messages]
    stub = beam_fn_api_pb2_grpc.BeamFnLoggingStub(sdk.channel)
    of_the_runner = stub.Logging(
        iter([beam_fn_api_pb2.LogEntry.List(log_entries=entries)]), metadata=sdk.metadata
    )
    list(of_the_runner)  # ends when all have been read


def fail_to_start(sdk: ScriptedSdk) -> None:
    log(sdk, _Severity.DEBUG, "Parsed options in boot entrypoint: {secret\n secret}")
    log(sdk, _Severity.DEBUG, "Executing Python: python -m sdk_worker_main")
    log(sdk, _Severity.ERROR, "Traceback:", "ModuleNotFoundError: No module named 'apache_beam'")


def test_why_an_sdk_does_not_start(scripted: Scripted) -> None:
    with pytest.raises(EnvironmentStartError, match="did not connect within 4 s") as caught:
        run_one(scripted(fail_to_start), [b"a"], start_timeout_s=4)
    assert str(caught.value).endswith(
        "Executing Python: python -m sdk_worker_main\n"
        "Traceback:\nModuleNotFoundError: No module named 'apache_beam'"
    )
    assert "secret" not in str(caught.value)


def die(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    log(
        sdk,
        _Severity.ERROR,
        *("Fatal Python error: Segmentation fault", ""),
        *("Thread 0x1 (most recent call first):", '  File "x.py", line 1 in wait', ""),
        *("Current thread 0x2 (most recent call first):", '  File "x.py", line 2 in fall'),
    )
    sdk.end_control()


def test_what_an_sdk_says_when_it_dies(scripted: Scripted) -> None:
    """Its boot program starts another one, so that the container stays."""
    with pytest.raises(SdkDisconnectedError, match=r"step: .* closed its control stream") as caught:
        run_one(scripted(die), [b"a"])
    assert "Segmentation fault" in str(caught.value)
    assert "in fall" in str(caught.value)
    assert "in wait" not in str(caught.value)

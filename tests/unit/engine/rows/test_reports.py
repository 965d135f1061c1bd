"""Errors of tasks reach the driver as what they are."""

import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import (
    BundleFailedError,
    EnvironmentStartError,
    FnApiProtocolError,
    HarnessStreamError,
    InvalidPipelineError,
    RunnerError,
    SdkDisconnectedError,
    StuckBundleError,
)
from beam_spark_runner.engine.rows.reports import _report_of, error_of, failure_proto
from beam_spark_runner.scheduling.attempts import Failure, Report
from beam_spark_runner.state.checked_blocks import DamagedFileError
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.stored_deltas import ShardStorageError


def there_and_back(error: RunnerError) -> RunnerError:
    proto = reports_pb2.Failure.FromString(failure_proto(error).SerializeToString())
    return error_of(
        Failure(
            step=proto.step,
            cause=proto.cause,
            traceback_text=proto.traceback,
            kind=proto.kind,
        )
    )


@pytest.mark.parametrize(
    "error",
    [
        BundleFailedError("Outer/step", "ValueError: no", "Traceback …\nValueError: no"),
        FnApiProtocolError("the SDK said what it must not"),
        InvalidPipelineError("the coder is no pair's", "Outer/step"),
        EnvironmentStartError("it did not connect", "its last words"),
        SdkDisconnectedError("it ended", ""),
        HarnessStreamError("OSError: No space left on device"),
        ShardStorageError("/local/main-1-0", "OSError: No space left on device"),
        CorruptDeltaError("main-1-0-000000000007", "there is no such file"),
        DamagedFileError("main-000000000007-3-ab.view", "it is cut off"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_stay_what_they_are(error: RunnerError) -> None:
    found = there_and_back(error)
    assert (type(found), found.args) == (type(error), error.args)


def test_any_other_error_keeps_its_text() -> None:
    found = there_and_back(RunnerError("something else"))
    assert isinstance(found, BundleFailedError)
    assert "something else" in str(found)


def test_a_report_that_says_little_has_the_same_defaults_on_both_sides() -> None:
    proto = reports_pb2.TaskReport(level=1, partition=2, attempt=3)
    assert _report_of(proto) == Report(level=1, partition=2, attempt=3)


@pytest.mark.parametrize("cause", ["no number", "9" * 5_000])
def test_a_failure_that_is_not_as_written_is_still_an_error(cause: str) -> None:
    failure = Failure(step="step", cause=cause, traceback_text="stack", kind="StuckBundleError")
    assert isinstance(error_of(failure), StuckBundleError)

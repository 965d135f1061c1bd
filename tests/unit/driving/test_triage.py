"""What becomes of one run of a segment."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JJavaError

from beam_spark_runner.core.errors import (
    BundleFailedError,
    CheckpointStorageError,
    LostRowsError,
    OutputStorageError,
    SparkJobError,
    StuckBundleError,
)
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.driving.output_rows import AmbiguousRowsError
from beam_spark_runner.driving.segment_store import CommittedByOtherError
from beam_spark_runner.driving.triage import Attempt, attempt, can_be_read
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import (
    Accepted,
    Ambiguous,
    Failed,
    Failure,
    Rejected,
    Verdict,
)
from beam_spark_runner.spark.driver import spark_errors

HERE, BEFORE = SegmentId(1), SegmentId(0)
AMBIGUOUS = Ambiguous(frozenset({7}), "two attempts")
LOST = "ExecutorLostFailure (executor 1 exited)"


class CancelledError(Exception):
    """The job is to end."""


class Spark:
    """Explains its exceptions."""

    def machines_were_lost(self, error: BaseException) -> bool:
        return spark_errors.machines_were_lost(error)

    def reason_of(self, error: BaseException) -> str:
        return spark_errors.reason_of(error)

    def levels_after(self, error: BaseException) -> int | None:
        return None


def nothing() -> None: ...


def fail(error: BaseException) -> NoReturn:
    raise error


def run(outcome: Verdict | Exception, **changes: Any) -> segments.Event:
    """Run a segment that has this outcome."""
    this = Attempt(
        segment=HERE,
        cluster=Spark(),
        title="Sum",
        run=lambda: fail(outcome) if isinstance(outcome, Exception) else outcome,
        check_cancelled=nothing,
        blamed_for=lambda error: "Sum/Divide",
    )
    return attempt(dataclasses.replace(this, **changes))


def before(runs: Any = ()) -> frozenset[SegmentId]:
    return frozenset({BEFORE})


@pytest.mark.parametrize(
    ("outcome", "changes", "event"),
    [
        pytest.param(Accepted(), {}, segments.RanSegment(HERE), id="accepted"),
        pytest.param(Rejected("late"), {}, segments.Rejected(HERE, "late"), id="rejected"),
        pytest.param(
            AMBIGUOUS, {}, segments.Rejected(HERE, "two attempts"), id="ambiguous rows of its own"
        ),
        pytest.param(
            AMBIGUOUS,
            {"writers_in": lambda runs: before() if set(runs) == {7} else None},
            segments.Lost(HERE, before(), "two attempts"),
            id="ambiguous rows of another segment",
        ),
        pytest.param(
            AmbiguousRowsError(AMBIGUOUS),
            {"writers_in": before},
            segments.Lost(HERE, before(), "two attempts"),
            id="ambiguous rows in a side input",
        ),
        pytest.param(
            RuntimeError(LOST), {}, segments.Crashed(HERE, LOST), id="an executor was lost"
        ),
        pytest.param(
            RuntimeError(LOST),
            {"writers_lost": before},
            segments.Lost(HERE, before(), LOST),
            id="rows were lost with an executor",
        ),
    ],
)
def test_the_event_of_an_outcome(
    outcome: Verdict | Exception,
    changes: dict[str, Callable[..., Any]],
    event: segments.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert run(outcome, **changes) == event
    # Users see why it runs again.
    reasons = [] if isinstance(event, segments.RanSegment) else [event.reason]
    assert [text.rpartition(": ")[2] for text in caplog.messages] == reasons
    assert all(text.startswith("Sum") for text in caplog.messages)


def test_a_failure_of_user_code_is_raised() -> None:
    failure = Failure(step="Divide", cause="ZeroDivisionError", traceback_text="…", kind="")
    with pytest.raises(BundleFailedError, match="Divide"):
        run(Failed(failure))


def test_errors_of_the_runner_are_raised_as_they_are() -> None:
    error = CheckpointStorageError("/checkpoints", "disk full")
    with pytest.raises(CheckpointStorageError) as raised:
        run(error)
    assert raised.value is error


def test_other_errors_are_blamed_on_steps() -> None:
    with pytest.raises(SparkJobError, match="Sum/Divide"):
        run(ValueError("Spark has no plan for this"))


def test_what_has_effects_does_not_run_again() -> None:
    with pytest.raises(SparkJobError, match="the table is locked"):
        run(
            RuntimeError(LOST),
            may_run_again=lambda: False,
            reason_for=lambda error: "the table is locked",
        )


def test_a_cancelled_spark_job_is_no_failure() -> None:
    with pytest.raises(CancelledError):
        run(RuntimeError(LOST), check_cancelled=lambda: fail(CancelledError()))


def test_a_stuck_bundle_is_recognised_in_the_text_of_spark() -> None:
    stuck = StuckBundleError("Wait", 5, "in wait")
    with pytest.raises(StuckBundleError, match="Wait"):
        run(RuntimeError(f"StuckBundleError: {stuck}"))


def read(outcome: bool | Exception, check_cancelled: Callable[[], None] = nothing) -> bool:
    """Return whether rows can be read, of which reading has this outcome."""

    def is_complete() -> bool:
        return fail(outcome) if isinstance(outcome, Exception) else outcome

    return can_be_read(is_complete, Spark(), check_cancelled, lambda error: "segment 0")


MISSING = LostRowsError(7, "/job/p00000.rows is missing")


@pytest.mark.parametrize(
    ("outcome", "can"),
    [
        pytest.param(True, True, id="complete"),
        pytest.param(False, False, id="of other attempts"),
        pytest.param(RuntimeError(LOST), False, id="lost with an executor"),
        pytest.param(MISSING, False, id="a file is missing"),
        pytest.param(RuntimeError(f"LostRowsError: {MISSING}"), False, id="a task has said so"),
    ],
)
def test_whether_materialised_rows_can_be_read(outcome: bool | Exception, can: bool) -> None:
    assert read(outcome) is can


@pytest.mark.parametrize("is_of_task", [True, False])
def test_a_folder_that_cannot_be_read_now_has_lost_nothing(is_of_task: bool) -> None:
    error = OutputStorageError("/job", "unavailable")
    with pytest.raises(OutputStorageError, match="unavailable"):
        read(RuntimeError(f"OutputStorageError: {error}") if is_of_task else error)


@pytest.mark.parametrize("error", [RuntimeError(LOST), RuntimeError(f"LostRowsError: {MISSING}")])
def test_rows_of_a_job_that_was_cancelled_are_not_looked_for(error: Exception) -> None:
    with pytest.raises(CancelledError):
        read(error, lambda: fail(CancelledError()))


def test_a_commit_of_another_start_is_no_failure_of_the_segment() -> None:
    with pytest.raises(CommittedByOtherError):
        run(CommittedByOtherError())


def test_an_error_of_java_without_its_jvm_is_an_error_of_spark() -> None:
    gone = ConnectionRefusedError(111, "refused")
    client = SimpleNamespace(send_command=lambda _: fail(gone))
    java: Any = SimpleNamespace(
        _gateway_client=client, _target_id="o1", toString=lambda: fail(gone)
    )
    with pytest.raises(SparkJobError, match="Spark's JVM has ended"):
        run(Py4JJavaError("An error occurred while calling o1.collect", java))

"""States and messages of a job, in one order."""

import logging
import time
import types
from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_job_api_pb2

from beam_spark_runner.backchannel.log_lines import LogHandler
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.watching.record import TRANSITIONS, JobRecord, StateChange


def shown(record: JobRecord) -> list[str]:
    return [
        event.state if isinstance(event, StateChange) else event.message_text
        for event in record.events.follow()
    ]


def test_the_last_state_is_the_last_event() -> None:
    record = JobRecord({})
    record.change_state("STARTING")
    record.messages.warn("one")
    record.change_state("RUNNING")
    record.messages.leave_out(2)
    record.messages.fail(ValueError("bad"))
    record.end("FAILED")
    assert shown(record) == [
        *("STARTING", "one", "RUNNING", "bad"),
        *("2 log lines were dropped because there were too many", "FAILED"),
    ]
    assert [each.state for each in record.states.follow()] == ["STARTING", "RUNNING", "FAILED"]
    assert record.state == "FAILED"
    assert record.messages.log.events()[1].importance == (
        beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR
    )


def test_only_the_reason_of_the_failure_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Java's client raises the first message of that importance, and Python's the last."""
    record = JobRecord({TransformId("t"): "Read"})
    severities = beam_fn_api_pb2.LogEntry.Severity
    for severity in (severities.WARN, severities.ERROR, severities.CRITICAL):
        line = beam_fn_api_pb2.LogEntry(message="a line", transform_id="t", severity=severity)
        record.messages.take_line("worker-1", line)
    record.messages.fail(ValueError("bad"))
    record.messages.take_line("worker-1", line)
    assert caplog.messages[:3] == ["a line [Read, worker-1]"] * 3
    assert [each.levelname for each in caplog.records[:3]] == ["WARNING", "ERROR", "CRITICAL"]
    importance = beam_job_api_pb2.JobMessage
    line_as = "{}a line [Read, worker-1]".format
    assert [(each.importance, each.message_text) for each in record.messages.log.events()] == [
        (importance.JOB_MESSAGE_WARNING, line_as("")),
        (importance.JOB_MESSAGE_WARNING, line_as("ERROR: ")),
        (importance.JOB_MESSAGE_WARNING, line_as("CRITICAL: ")),
        (importance.JOB_MESSAGE_ERROR, "bad"),
        (importance.JOB_MESSAGE_WARNING, line_as("CRITICAL: ")),
    ]


@pytest.mark.parametrize("job_id", ["", "100%_1"], ids=["a program's job", "a server's"])
def test_a_server_logs_all_of_a_job_with_its_id(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, job_id: str
) -> None:
    times = types.SimpleNamespace(time=time.time, monotonic=lambda: 10.0)
    monkeypatch.setattr("beam_spark_runner.job.watching.record.time", times)
    caplog.set_level(logging.INFO)
    record = JobRecord({TransformId("t"): "Read"}, job_id)
    record.change_state("STARTING")
    caplog.clear()
    record.change_state("RUNNING")
    line = beam_fn_api_pb2.LogEntry(
        message="100% of it", transform_id="t", severity=beam_fn_api_pb2.LogEntry.Severity.WARN
    )
    record.messages.take_line("worker-1", line)
    record.messages.warn("a warning")
    record.messages.inform("a line")
    record.messages.fail(ValueError("bad"))
    record.end("FAILED")
    of_a_program = ["100% of it [Read, worker-1]", "a warning", "a line"]
    assert caplog.messages == (
        [
            f"{job_id}: {text}"
            for text in ("starting → running", *of_a_program, "bad", "running → failed in 0:00")
        ]
        if job_id
        else of_a_program
    )
    # Clients know their job.
    assert shown(record)[2:-2] == of_a_program


@pytest.mark.parametrize("job_id", ["", "b4ac"], ids=["a program's job", "a server's"])
def test_lines_keep_the_name_of_their_logger(caplog: pytest.LogCaptureFixture, job_id: str) -> None:
    sent: list[beam_fn_api_pb2.LogEntry] = []
    sink: Any = types.SimpleNamespace(log=sent.append)
    logged = logging.LogRecord("of.%d", logging.WARNING, "/a/b.py", 7, "a %s", ("line",), None)
    LogHandler(sink).handle(logged)
    record = JobRecord({}, job_id)
    record.messages.take_line("worker-1", sent[0])
    (shown,) = caplog.records
    assert (shown.name, shown.filename, shown.lineno) == ("of.%d", "b.py", 7)
    assert shown.getMessage() == ("b4ac: of.%d: " if job_id else "") + "a line [worker-1]"
    assert shown.args[0] == "a line"  # type: ignore[index]


def test_changes_of_states_are_logged_for_people(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((10.0, 102.5))
    times = types.SimpleNamespace(time=time.time, monotonic=lambda: next(clock))
    monkeypatch.setattr("beam_spark_runner.job.watching.record.time", times)
    caplog.set_level(logging.INFO)
    record = JobRecord({}, "b4ac", '"first" of 127.0.0.1')
    for state in ("STOPPED", "STARTING", "RUNNING"):
        record.change_state(state)
    record.end("DONE")
    assert caplog.messages == [
        'b4ac "first" of 127.0.0.1: waiting',
        'b4ac "first" of 127.0.0.1: waiting → starting',
        'b4ac "first" of 127.0.0.1: starting → running',
        'b4ac "first" of 127.0.0.1: running → done in 1:32',
    ]


def test_a_job_that_is_cancelled_in_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    record = JobRecord({}, "b4ac")
    record.change_state("STOPPED")
    record.end("CANCELLED")
    assert caplog.messages == ["b4ac: waiting", "b4ac: waiting → cancelled"]


STATES = ("STOPPED", "STARTING", "RUNNING", "DRAINING", "DRAINED", "DONE", "FAILED", "CANCELLED")


@pytest.mark.parametrize("last", ["DONE", "FAILED", "CANCELLED", "DRAINED"])
def test_no_state_follows_a_last_one(last: str) -> None:
    for state in STATES:
        record = JobRecord({})
        record.change_state("STARTING")
        record.change_state("RUNNING")
        record.change_state(last)
        assert record.has_last_state
        with pytest.raises(InvariantError, match=f"from {last} to {state}"):
            record.change_state(state)


def test_a_job_does_not_return_to_the_queue() -> None:
    record = JobRecord({})
    for state, has_begun in (("STOPPED", False), ("STARTING", True)):
        record.change_state(state)
        assert record.has_begun == has_begun
    with pytest.raises(InvariantError, match="from STARTING to STOPPED"):
        record.change_state("STOPPED")


def test_every_state_can_be_reached_and_ends() -> None:
    reached = {state for states in TRANSITIONS.values() for state in states}
    assert reached == set(STATES)
    assert reached - set(TRANSITIONS) == {"DONE", "FAILED", "CANCELLED", "DRAINED"}

"""States and messages of a job, in one order."""

import logging

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_job_api_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.record import JobRecord, StateChange


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
    caplog: pytest.LogCaptureFixture, job_id: str
) -> None:
    caplog.set_level(logging.INFO)
    record = JobRecord({TransformId("t"): "Read"}, job_id)
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
        [f"{job_id}: {text}" for text in ("RUNNING", *of_a_program, "bad", "FAILED")]
        if job_id
        else of_a_program
    )
    # Clients know their job.
    assert shown(record)[1:-2] == of_a_program

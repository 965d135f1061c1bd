"""States and messages of a job, in one order."""

from apache_beam.portability.api import beam_job_api_pb2

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

"""Timestamps of records, and watermarks."""

import pytest
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.records import KafkaRecord
from beam_spark_runner.transforms.kafka.timestamps import (
    CreateTime,
    EventTime,
    LogAppendTime,
    ProcessingTime,
    TimestampPolicy,
    policy_of,
)

NOW = 1_000_000_000_000
S = 1_000_000
CREATED, APPENDED = 1, 2


def test_processing_time_is_now() -> None:
    policy = ProcessingTime()
    assert policy.of_message(CREATED, 5, NOW) == NOW
    assert policy.watermark_after(NOW, NOW + 9) == NOW
    assert not policy.asks_for_end
    # Partitions that nobody knows yet have no record before they are found.
    assert policy.of_unknown_partitions(NOW, NOW + 5 * S) == NOW + 5 * S


def test_log_append_time_asks_for_topics_that_have_it() -> None:
    policy = LogAppendTime()
    assert policy.of_message(APPENDED, 5, NOW) == 5000
    with pytest.raises(KafkaAccessError, match=r"set message\.timestamp\.type"):
        policy.of_message(CREATED, 5, NOW)


def test_a_partition_whose_end_was_read_continues_behind_the_clock() -> None:
    assert LogAppendTime().without_records(NOW) == NOW - 2 * S
    assert CreateTime(7).without_records(NOW) == NOW - 7 * S


@pytest.mark.parametrize(
    ("newest", "watermark"),
    [
        pytest.param(NOW - 60 * S, NOW - 67 * S, id="the newest record, less the delay"),
        pytest.param(NOW + 60 * S, NOW - 7 * S, id="a producer's clock is fast: now"),
    ],
)
@pytest.mark.parametrize("policy", [CreateTime(7), EventTime(7)])
def test_records_may_be_late_by_the_delay(
    policy: TimestampPolicy, newest: int, watermark: int
) -> None:
    assert policy.watermark_after(newest, NOW) == watermark
    # What producers have written into partitions that were not found.
    assert policy.of_unknown_partitions(NOW, NOW + S) == NOW - 7 * S


@pytest.mark.parametrize(("kind", "timestamp"), [(0, -1), (CREATED, -1)])
def test_records_without_a_time_are_refused(kind: int, timestamp: int) -> None:
    with pytest.raises(KafkaAccessError, match="use ProcessingTime or EventTime"):
        CreateTime().of_message(kind, timestamp, NOW)


def test_event_time_without_a_function_is_that_of_the_record() -> None:
    def record(timestamp: int) -> KafkaRecord:
        return KafkaRecord("t", 0, 1, timestamp, "CreateTime", None, b"", [])

    assert EventTime().of_record(record(1500)) == 1_500_000
    with pytest.raises(KafkaAccessError, match="without a timestamp_fn"):
        EventTime().of_record(record(-1))


@pytest.mark.parametrize("found", [12.5, Timestamp(12.5)])
def test_event_time_is_what_a_function_finds(found: object) -> None:
    record = KafkaRecord("t", 0, 1, 2, "CreateTime", None, b"12.5", [])
    policy = EventTime(timestamp_fn=lambda each: found if each is record else None)
    assert policy.reads_records
    assert policy.of_record(record) == 12_500_000


def test_policies_have_beams_names() -> None:
    assert policy_of("ProcessingTime", "r") == ProcessingTime()
    assert policy_of("CreateTime", "r") == CreateTime(0)
    assert policy_of("LogAppendTime", "r") == LogAppendTime()
    assert policy_of(CreateTime(3), "r") == CreateTime(3)
    with pytest.raises(KafkaAccessError, match="r: timestamp_policy is 'EventTime'; it may be"):
        policy_of("EventTime", "r")

"""Policies for the timestamps of elements and the watermark of a partition, in microseconds.

Source: Java ``TimestampPolicyFactory`` and ``CustomTimestampPolicyWithLimitedDelay`` of KafkaIO.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apache_beam.utils.timestamp import Timestamp
from typing_extensions import override

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.records import KafkaRecord

TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""The timestamp types, at the index that is librdkafka's number of the type."""

_APPEND_DELAY_US = 2_000_000  # for differences of clocks, and records not yet in the log


class TimestampPolicy(ABC):
    """Computes the timestamps of elements and the watermark of a partition.

    Attributes:
        reads_records: Whether ``of_record`` is called for timestamps, in place of ``of_message``.
        asks_for_end: Whether the watermark of a partition without new records may advance only
            if a broker has confirmed that there are none.
    """

    reads_records = False
    asks_for_end = True

    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        """Return the timestamp of an element.

        Args:
            kind: The type of the record's timestamp, an index of ``TIMESTAMP_TYPES``.
            timestamp_ms: The timestamp of the record.
            now_us: When the record was read.

        Raises:
            KafkaAccessError: The record has no timestamp, or one of a type that is not allowed.
        """
        raise NotImplementedError

    def of_record(self, record: KafkaRecord) -> int:
        """Return the timestamp of an element."""
        raise NotImplementedError

    @abstractmethod
    def watermark_after(self, newest_us: int, now_us: int) -> int:
        """Return the watermark after records have been read.

        Args:
            newest_us: The latest timestamp of the records.
            now_us: When they were read.
        """

    @abstractmethod
    def without_records(self, since_us: int) -> int:
        """Return the watermark of a partition that had no unread records at ``since_us``."""

    def of_unknown_partitions(self, looked_us: int, next_look_us: int) -> int:
        """Return a lower bound of the timestamps in partitions that are yet to be found.

        Args:
            looked_us: The time at which they did not exist.
            next_look_us: The time at which they are found at the earliest.
        """
        return self.without_records(looked_us)


@dataclass(frozen=True)
class ProcessingTime(TimestampPolicy):
    """Timestamps are the times at which records are read."""

    asks_for_end = False

    @override
    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        return now_us

    @override
    def watermark_after(self, newest_us: int, now_us: int) -> int:
        return newest_us

    @override
    def without_records(self, since_us: int) -> int:
        return since_us

    @override
    def of_unknown_partitions(self, looked_us: int, next_look_us: int) -> int:
        return next_look_us


@dataclass(frozen=True)
class LogAppendTime(TimestampPolicy):
    """Timestamps are the times at which the broker has appended records to its log.

    The topic must have ``message.timestamp.type=LogAppendTime``. These times increase within a
    partition. The watermark of a partition without new records is two seconds before now.
    """

    @override
    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        if TIMESTAMP_TYPES[kind] != "LogAppendTime":
            raise KafkaAccessError(
                "timestamp_policy is LogAppendTime, but its records have a timestamp of type "
                f"{TIMESTAMP_TYPES[kind]}: set message.timestamp.type=LogAppendTime on the topic, "
                "or use CreateTime",
                "",
            )
        return timestamp_ms * 1000

    @override
    def watermark_after(self, newest_us: int, now_us: int) -> int:
        return newest_us

    @override
    def without_records(self, since_us: int) -> int:
        return since_us - _APPEND_DELAY_US


@dataclass(frozen=True)
class _Delayed(TimestampPolicy):
    """The watermark is the newest timestamp, or now if that is earlier, less a delay.

    Args:
        max_delay: The seconds by which a record may arrive after newer ones of its partition.
    """

    max_delay: float = 0.0

    @property
    def _delay_us(self) -> int:
        return round(self.max_delay * 1_000_000)

    @override
    def watermark_after(self, newest_us: int, now_us: int) -> int:
        return min(newest_us, now_us) - self._delay_us

    @override
    def without_records(self, since_us: int) -> int:
        return since_us - self._delay_us


@dataclass(frozen=True)
class CreateTime(_Delayed):
    """Timestamps are the times at which producers have made records.

    A record that arrives later than ``max_delay`` allows may be late. The watermark of a partition
    without new records is now, less ``max_delay``.

    Args:
        max_delay: The seconds by which a record may arrive after newer ones of its partition.
    """

    @override
    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        if timestamp_ms < 0 or not kind:
            raise KafkaAccessError(
                "timestamp_policy is CreateTime, but a record has no timestamp: use ProcessingTime "
                "or EventTime",
                "",
            )
        return timestamp_ms * 1000


def _timestamp_s(record: KafkaRecord) -> float:
    if record.timestamp < 0:
        raise KafkaAccessError(
            "timestamp_policy is EventTime without a timestamp_fn, but a record has no timestamp: "
            "use a timestamp_fn, or ProcessingTime",
            "",
        )
    return record.timestamp / 1000


@dataclass(frozen=True)
class EventTime(_Delayed):
    """Timestamps are computed from records by a function.

    Args:
        max_delay: See ``CreateTime``.
        timestamp_fn: A function of a ``KafkaRecord`` that returns a ``Timestamp``, or seconds
            since the Unix epoch. By default, the record's own timestamp, which it must have.

    Example:
        EventTime(max_delay=10, timestamp_fn=lambda record: json.loads(record.value)["at"])
    """

    timestamp_fn: Callable[[KafkaRecord], Any] = _timestamp_s
    reads_records = True

    @override
    def of_record(self, record: KafkaRecord) -> int:
        micros: int = Timestamp.of(self.timestamp_fn(record)).micros
        return micros


_BY_NAME = {
    "ProcessingTime": ProcessingTime(),
    "CreateTime": CreateTime(),
    "LogAppendTime": LogAppendTime(),
}


def policy_of(argument: Any, transform: str) -> TimestampPolicy:
    """Return the policy that an argument is or names.

    Args:
        argument: A policy, or its name in Beam's ``ReadFromKafka``.
        transform: The label of the transform, for errors.

    Raises:
        KafkaAccessError: The argument is neither.
    """
    if isinstance(argument, TimestampPolicy):
        return argument
    if argument in _BY_NAME:
        return _BY_NAME[argument]
    raise KafkaAccessError(
        f"timestamp_policy is {argument!r}; it may be ProcessingTime, CreateTime or LogAppendTime, "
        "or CreateTime(max_delay=…) or EventTime(max_delay=…, timestamp_fn=…)",
        transform,
    )

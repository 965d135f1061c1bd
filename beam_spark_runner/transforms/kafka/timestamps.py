"""Timestamps of elements, and the watermark of a partition. All times in microseconds.

Source: Java ``TimestampPolicyFactory`` and ``CustomTimestampPolicyWithLimitedDelay`` of KafkaIO.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.records import KafkaRecord

TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""By the number that librdkafka has for them."""

_APPEND_DELAY_US = 2_000_000  # clocks of brokers, and records on their way to the log


class TimestampPolicy(ABC):
    """What the timestamp of an element is, and how far a partition's watermark is.

    Attributes:
        reads_records: ``of_record`` is asked, and not ``of_message``.
        asks_for_end: the watermark of a partition without new records depends on the broker.
    """

    reads_records = False
    asks_for_end = True

    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        """Return an element's time.

        Args:
            kind: of the timestamp, see ``TIMESTAMP_TYPES``.
            timestamp_ms: of the record.
            now_us: when it was read.

        Raises:
            KafkaAccessError: its timestamp is of another kind than this needs.
        """
        raise NotImplementedError

    def of_record(self, record: KafkaRecord) -> int:
        """Return an element's time."""
        raise NotImplementedError

    @abstractmethod
    def after(self, newest_us: int, now_us: int) -> int:
        """Return the watermark after records, the newest of which has this time."""

    @abstractmethod
    def without_records(self, since_us: int) -> int:
        """Return the watermark of a partition all of which had been read at this time."""

    def of_unknown_partitions(self, looked_us: int, next_look_us: int) -> int:
        """Return what no record of a partition precedes that did not exist at a time.

        Args:
            looked_us: the time at which it did not exist.
            next_look_us: when it will be found at the earliest.
        """
        return self.without_records(looked_us)


@dataclass(frozen=True)
class ProcessingTime(TimestampPolicy):
    """The time at which a record is read."""

    asks_for_end = False

    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        """See ``TimestampPolicy``, as of all methods."""
        return now_us

    def after(self, newest_us: int, now_us: int) -> int:
        return newest_us

    def without_records(self, since_us: int) -> int:
        return since_us

    def of_unknown_partitions(self, looked_us: int, next_look_us: int) -> int:
        return next_look_us


@dataclass(frozen=True)
class LogAppendTime(TimestampPolicy):
    """The time at which the broker has appended a record to its log.

    The topic must have ``message.timestamp.type=LogAppendTime``. These times increase within a
    partition. The watermark of a partition without new records is two seconds ago.
    """

    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        """See ``TimestampPolicy``, as of all methods."""
        if TIMESTAMP_TYPES[kind] != "LogAppendTime":
            raise KafkaAccessError(
                "timestamp_policy is LogAppendTime, but its records have a timestamp of type "
                f"{TIMESTAMP_TYPES[kind]}: set message.timestamp.type=LogAppendTime on the topic, "
                "or use CreateTime",
                "",
            )
        return timestamp_ms * 1000

    def after(self, newest_us: int, now_us: int) -> int:
        return newest_us

    def without_records(self, since_us: int) -> int:
        return since_us - _APPEND_DELAY_US


@dataclass(frozen=True)
class _Delayed(TimestampPolicy):
    """The watermark is less than the newest time by a delay, and less than now by as much.

    Args:
        max_delay: seconds by which a record may come later than newer ones of its partition.
    """

    max_delay: float = 0.0

    @property
    def _delay_us(self) -> int:
        return round(self.max_delay * 1_000_000)

    def after(self, newest_us: int, now_us: int) -> int:
        """See ``TimestampPolicy``, as of all methods."""
        return min(newest_us, now_us) - self._delay_us

    def without_records(self, since_us: int) -> int:
        return since_us - self._delay_us


@dataclass(frozen=True)
class CreateTime(_Delayed):
    """The time at which a producer has made a record.

    A record that comes later than ``max_delay`` allows is late. The watermark of a partition
    without new records is now, less ``max_delay``.

    Args:
        max_delay: seconds by which a record may come later than newer ones of its partition.
    """

    def of_message(self, kind: int, timestamp_ms: int, now_us: int) -> int:
        """See ``TimestampPolicy``."""
        if timestamp_ms < 0 or not kind:
            raise KafkaAccessError(
                "timestamp_policy is CreateTime, but a record has no timestamp: use ProcessingTime "
                "or EventTime",
                "",
            )
        return timestamp_ms * 1000


@dataclass(frozen=True)
class EventTime(_Delayed):
    """A time that a function finds in the record.

    Args:
        max_delay: as of ``CreateTime``.
        timestamp_fn: gets a ``KafkaRecord``; returns a ``Timestamp``, or seconds since the Unix
            epoch.

    Example:
        EventTime(max_delay=10, timestamp_fn=lambda record: json.loads(record.value)["at"])
    """

    timestamp_fn: Callable[[KafkaRecord], Any] = lambda record: record.timestamp / 1000
    reads_records = True

    def of_record(self, record: KafkaRecord) -> int:
        """See ``TimestampPolicy``."""
        micros: int = Timestamp.of(self.timestamp_fn(record)).micros
        return micros


_BY_NAME = {
    "ProcessingTime": ProcessingTime(),
    "CreateTime": CreateTime(),
    "LogAppendTime": LogAppendTime(),
}


def policy_of(given: Any, transform: str) -> TimestampPolicy:
    """Return a policy, or the one of a name that Beam has for it.

    Raises:
        KafkaAccessError: it is neither.
    """
    if isinstance(given, TimestampPolicy):
        return given
    if given in _BY_NAME:
        return _BY_NAME[given]
    raise KafkaAccessError(
        f"timestamp_policy is {given!r}; it may be ProcessingTime, CreateTime or LogAppendTime, "
        "or CreateTime(max_delay=…) or EventTime(max_delay=…, timestamp_fn=…)",
        transform,
    )

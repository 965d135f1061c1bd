"""How partitions are read: the arguments of ``ReadFromKafka``, and records as elements."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.records import KafkaHeader, KafkaRecord
from beam_spark_runner.transforms.kafka.timestamps import TIMESTAMP_TYPES, TimestampPolicy

_FIRST_US, _LAST_US = MIN_TIMESTAMP.micros, GlobalWindow().max_timestamp().micros


@dataclass(frozen=True)
class Reading:
    """How partitions are read.

    Attributes:
        id: The key by which instances in one process share consumers; unique for the transform.
        config: The configuration of consumers.
        policy: The timestamp policy.
        key_deserializer: Converts keys from bytes. None: they stay bytes.
        value_deserializer: Converts values from bytes. None: they stay bytes.
        with_metadata: Whether elements are ``KafkaRecord``s.
        reset: Where to continue if an offset is outside of the log: ``earliest`` or ``latest``.
            None: this is an error.
        polling_timeout_s: The seconds for which a new consumer waits for its first records.
        commits: Whether offsets are committed for the consumer group.
        transform: The label of the transform, for errors.
    """

    id: str
    config: dict[str, Any]
    policy: TimestampPolicy
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    with_metadata: bool
    reset: str | None
    polling_timeout_s: float
    commits: bool
    transform: str


class RecordConverter:
    """Converts records to elements with timestamps.

    Attributes:
        makes_new_values: Whether nothing else refers to the elements.

    Args:
        reading: The kind of elements, and their timestamp policy.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        deserializers = reading.key_deserializer, reading.value_deserializer
        self.makes_new_values = deserializers == (None, None)

    def elements(self, records: list[Any]) -> Iterator[Any]:
        """Return the elements of records, each of which is made when it is taken.

        Args:
            records: The records, in the form of ``confluent_kafka.Message``.

        Raises:
            KafkaAccessError: A record cannot be deserialized.
        """
        return map(self._record if self._reading.with_metadata else self._pair(), records)

    def times_us(self, records: list[Any], now_us: int) -> list[int]:
        """Return the timestamps of records in microseconds.

        Args:
            records: The records, at least one.
            now_us: When they were read.

        Raises:
            KafkaAccessError: A record has no valid timestamp.
        """
        policy = self._reading.policy
        if not policy.reads_records:
            of_message = policy.of_message
            with contextlib.suppress(Exception):  # raised again below, with the record
                stamps = [record.timestamp() for record in records]
                times_us = [of_message(kind, time_ms, now_us) for kind, time_ms in stamps]
                if min(times_us) >= _FIRST_US and max(times_us) <= _LAST_US:
                    return times_us
        return [self._time_us(record, now_us) for record in records]

    def _time_us(self, message: Any, now_us: int) -> int:
        policy = self._reading.policy
        try:
            if policy.reads_records:
                time_us = policy.of_record(self._record(message))
            else:
                kind, timestamp_ms = message.timestamp()
                time_us = policy.of_message(kind, timestamp_ms, now_us)
            if not _FIRST_US <= time_us <= _LAST_US:
                raise ValueError(f"{time_us} microseconds is no time that Beam has")
        except Exception as error:
            problem = error.problem if isinstance(error, KafkaAccessError) else repr(error)
            raise self._wrong(message, f"has no timestamp: {problem}") from error
        return time_us

    @staticmethod
    def _record(message: Any) -> KafkaRecord:
        kind, timestamp = message.timestamp()
        return KafkaRecord(
            message.topic(),
            message.partition(),
            message.offset(),
            timestamp if kind else -1,
            TIMESTAMP_TYPES[kind],
            message.key(),
            message.value(),
            [KafkaHeader(*header) for header in message.headers() or ()],
        )

    def _pair(self) -> Callable[[Any], tuple[Any, Any]]:
        of_key, of_value = self._reading.key_deserializer, self._reading.value_deserializer
        if of_key is None and of_value is None:
            return lambda message: (message.key(), message.value())

        def pair(message: Any) -> tuple[Any, Any]:
            key, value = message.key(), message.value()
            try:
                return (
                    key if key is None or of_key is None else of_key(key),
                    value if value is None or of_value is None else of_value(value),
                )
            except Exception as error:
                raise self._wrong(message, f"cannot be deserialized: {error!r}") from error

        return pair

    def _wrong(self, message: Any, problem: str) -> KafkaAccessError:
        place = f"{message.topic()}[{message.partition()}] at offset {message.offset()}"
        return KafkaAccessError(f"the record of {place} {problem}", self._reading.transform)

"""Reads one partition with its own client."""

from collections.abc import Mapping, Sequence
from typing import Any

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import (
    Outages,
    confluent,
    is_passing,
    open_consumer,
)
from beam_spark_runner.transforms.kafka.config import of_partition_readers
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError


class OutOfRangeError(Exception):
    """The offset to read is outside of the log, as after records were deleted."""


class PartitionConsumer:
    """Reads one partition, which is assigned to it: it does not join the consumer group.

    Attributes:
        position: The offset from which ``poll`` continues.
        has_answered: Whether the broker has sent records or an end since the last ``seek``.
        is_at_end: Whether the broker had no more records at its last answer.

    Args:
        config: The user's configuration.
        transform: The label of the transform, for errors.
        topic: The topic.
        partition: The number of the partition.
        offset: The first offset to read.

    Raises:
        KafkaAccessError: librdkafka does not accept the configuration.
    """

    def __init__(
        self, config: Mapping[str, Any], transform: str, topic: str, partition: int, offset: int
    ) -> None:
        self._module = confluent(transform)
        self._where = f"{transform}: {topic}[{partition}]"
        self._partition = topic, partition
        self._outages = Outages(self._where)
        self._has_group = "group.id" in config
        self._consumer = open_consumer(of_partition_readers(config), self._where, self._outages)
        self.seek(offset)

    def seek(self, offset: int) -> None:
        """Continue from another offset."""
        self.position = offset
        self.has_answered = self.is_at_end = False
        self._put_back: list[Any] = []
        self._after_put_back = offset
        self._error: Exception | None = None  # for the next ``poll``: it came after records
        self._consumer.assign([self._module.TopicPartition(*self._partition, offset)])

    def poll(self, most: int, wait_s: float) -> list[Any]:
        """Return the next records that have arrived; ``position`` may advance without any.

        Args:
            most: The most records to return.
            wait_s: The time limit for the first record, in seconds.

        Raises:
            OutOfRangeError: The offset is outside of the log.
            KafkaAccessError: The partition cannot be read.
        """
        records: list[Any]
        if self._put_back:
            records, self._put_back = self._put_back[:most], self._put_back[most:]
            self.position = self._put_back[0].offset() if self._put_back else self._after_put_back
            return records
        if self._error is not None:
            raise self._error
        # ``consume`` waits until it has as many messages as requested, or the time is over.
        messages = self._consumer.consume(1, wait_s)
        if messages and most > 1 and messages[0].error() is None:
            messages += self._consumer.consume(most - 1, 0)
        records = []
        end: int | None = None  # of the log, if no record came after it
        try:
            self._outages.check()
            if messages and messages[0].error() is None:
                self._outages.worked()  # an error that follows may be transient
            for message in messages:
                error = message.error()
                if error is None:
                    records.append(message)
                    end = None
                elif self._is_end(error):
                    end = message.offset()
                    self._outages.worked()
        except (OutOfRangeError, KafkaAccessError) as error:
            if not records:
                raise
            self._error = error
        if records:
            self.position = records[-1].offset() + 1
        if end is not None:
            self.position = max(self.position, end)
        if records or end is not None:
            self.is_at_end = end is not None
            self.has_answered = True
        return records

    def known_end(self) -> int:
        """Return the offset after the last record, as of the broker's last answer; -1: unknown.

        Records of open transactions are included.
        """
        partition = self._module.TopicPartition(*self._partition)
        _, end = self._consumer.get_watermark_offsets(partition, cached=True)
        return max(int(end), -1)

    def put_back(self, records: Sequence[Any]) -> None:
        """Have ``poll`` return the last records of its earlier results again."""
        if records:
            if not self._put_back:  # librdkafka reports the end of a partition once
                self._after_put_back = self.position
            self._put_back = [*records, *self._put_back]
            self.position = records[0].offset()

    def _is_end(self, error: Any) -> bool:
        """Whether an error is the end of the partition; False: it is to be ignored.

        Raises:
            OutOfRangeError: The offset is outside of the log.
            KafkaAccessError: The partition cannot be read.
        """
        name = error.name()
        if name == error_names.END_OF_PARTITION:
            return True
        if name in error_names.OUT_OF_RANGE:
            raise OutOfRangeError(error.str())
        if name == error_names.NO_ACCESS_TO_GROUP and not self._has_group:
            return False  # the default group is unused; librdkafka only requires its name
        if is_passing(error):
            self._outages.report(error)
            return False
        raise KafkaAccessError(f"it cannot be read: {error.str()}", self._where)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

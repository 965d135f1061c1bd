"""Consumers of single partitions, which stay open from one bundle to the next."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import (
    LOG,
    Outages,
    confluent,
    is_passing,
    open_consumer,
)
from beam_spark_runner.transforms.kafka.config import of_inquiries, of_partition_readers
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError

_IDLE_S = 60.0
_ASK_END_EVERY_S = 1.0
_ASK_END_TIMEOUT_S = 1.0
_ASK_AGAIN_S = 3.0
_GONE_S = 60.0  # not all brokers know a new topic at once
_ASK_BOUNDS_TIMEOUT_S = 30.0


class OutOfRangeError(Exception):
    """The offset to read is outside of the log, as after records were deleted."""


class PartitionConsumer:
    """Reads one partition, which is assigned to it: it does not join the consumer group.

    Attributes:
        position: The offset from which ``take`` continues.
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
        self._error: Exception | None = None  # for the next ``take``: it came after records
        self._consumer.assign([self._module.TopicPartition(*self._partition, offset)])

    def take(self, most: int, wait_s: float) -> list[Any]:
        """Return the next records that have arrived; ``position`` may advance without any.

        Args:
            most: The most records to return.
            wait_s: The time limit for the first record, in seconds.

        Raises:
            OutOfRangeError: The offset is outside of the log.
            KafkaAccessError: The partition cannot be read.
        """
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
        try:
            self._outages.check()
            for message in messages:
                error = message.error()
                if error is None:
                    records.append(message)
                    self.position = message.offset() + 1
                    self.is_at_end = False
                elif self._is_end(error):
                    self.position = max(self.position, message.offset())
                    self.is_at_end = True
                else:
                    continue
                self.has_answered = True
                self._outages.worked()
        except (OutOfRangeError, KafkaAccessError) as error:
            if not records:
                raise
            self._error = error
        return records

    def known_end(self) -> int:
        """Return the offset after the last record, as of the broker's last answer; -1: unknown.

        Records of open transactions are included.
        """
        partition = self._module.TopicPartition(*self._partition)
        _, end = self._consumer.get_watermark_offsets(partition, cached=True)
        return max(int(end), -1)

    def put_back(self, records: Sequence[Any]) -> None:
        """Have ``take`` return the last records of its earlier results again."""
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


@dataclass
class _Parked:
    consumer: PartitionConsumer
    since_s: float


@dataclass
class _End:
    """The end of a partition's log, as a broker reported it.

    Attributes:
        offset: The offset after the last record. -1: the broker did not answer.
        since_us: When the broker was asked, in microseconds since the Unix epoch.
        next_s: When to ask again, in seconds of the monotonic clock.
        missing_s: Since when brokers report that there is no such topic or partition, in seconds
            of the monotonic clock. None: they do not report that.
    """

    offset: int
    since_us: int
    next_s: float
    missing_s: float | None = None


class Consumers:
    """The pool of one transform's consumers in this process.

    Threads: any. Between ``take`` and ``give_back``, only the caller uses a consumer.

    Args:
        config: The user's configuration.
        transform: The label of the transform, for errors.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._config, self._transform = config, transform
        self._lock = threading.Lock()
        self._outages = Outages(transform)
        self._parked: dict[tuple[str, int], list[_Parked]] = {}
        self._ends: dict[tuple[str, int], _End] = {}
        self._known_ends: dict[tuple[str, int], int] = {}
        self._inquirers: dict[str, Any] = {}

    def take(self, topic: str, partition: int, offset: int) -> PartitionConsumer:
        """Return a consumer at an offset, if possible one of the pool that has stopped there."""
        with self._lock:
            parked = self._parked.get((topic, partition), [])
            at = [each for each in parked if each.consumer.position == offset]
            found = (at or parked)[-1:]
            for each in found:
                parked.remove(each)
        self._close_idle()
        if not found:
            return PartitionConsumer(self._config, self._transform, topic, partition, offset)
        consumer = found[0].consumer
        if consumer.position != offset:
            consumer.seek(offset)
        return consumer

    def give_back(self, topic: str, partition: int, consumer: PartitionConsumer) -> None:
        """Return a consumer to the pool, for the next bundle."""
        known_end = consumer.known_end()
        with self._lock:
            if known_end >= 0:
                self._known_ends[topic, partition] = known_end
            parked = self._parked.setdefault((topic, partition), [])
            parked.append(_Parked(consumer, time.monotonic()))

    def known_end_of(self, topic: str, partition: int) -> int:
        """Return the offset after the last record, as far as this process knows; -1: unknown.

        It is of the end of the last bundle that has read the partition in this process.
        """
        return self._known_ends.get((topic, partition), -1)

    def end_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the end of a partition's log, open transactions included, at most a second old.

        Returns:
            The offset after the last record, and when the broker was asked, in microseconds since
            the Unix epoch. (-1, 0): the broker does not answer.
        """
        key = topic, partition
        with self._lock:
            before = end = self._ends.get(key)
            if end is not None and time.monotonic() < end.next_s:
                return end.offset, end.since_us
        module = confluent(self._transform)
        asked_us = time.time_ns() // 1000
        try:
            end = _End(self._end(*key), asked_us, time.monotonic() + _ASK_END_EVERY_S)
        except module.KafkaException as error:
            self._outages.warn(
                f"it is unknown whether {topic}[{partition}] has more records, so its watermark "
                f"does not advance: {error}"
            )
            now_s = time.monotonic()
            end = _End(-1, 0, now_s + _ASK_AGAIN_S)
            if error.args[0].name() in error_names.NOT_THERE:
                end.missing_s = (before and before.missing_s) or now_s
        with self._lock:
            self._ends[key] = end
        return end.offset, end.since_us

    def is_gone(self, topic: str, partition: int) -> bool:
        """Whether brokers have reported for a minute that there is no such topic or partition.

        False unless this process has read from it: after a restart with other brokers, these may
        never have had it.
        """
        end = self._ends.get((topic, partition))
        if end is None or end.missing_s is None or self.known_end_of(topic, partition) < 0:
            return False
        return time.monotonic() - end.missing_s > _GONE_S

    def _end(self, topic: str, partition: int) -> int:
        module = confluent(self._transform)
        asked = module.TopicPartition(topic, partition)
        for is_last_try in (False, True):
            with self._lock:
                client = self._inquirer("end", {"isolation.level": "read_uncommitted"})
            try:
                end: int = client.get_watermark_offsets(asked, timeout=_ASK_END_TIMEOUT_S)[1]
                return end
            except module.KafkaException as error:
                if is_last_try or error.args[0].name() != error_names.UNKNOWN_PARTITION:
                    raise
                # The partition may be newer than the client's metadata: retry with a new client.
                with self._lock:
                    self._inquirers.pop("end", None)
        raise AssertionError("the last try returns or raises")

    def bounds_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset of a partition and the one after its last record.

        None: the broker does not answer. A warning is logged.
        """
        with self._lock:
            client = self._inquirer("end", {"isolation.level": "read_uncommitted"})
        module = confluent(self._transform)
        asked = module.TopicPartition(topic, partition)
        try:
            low, end = client.get_watermark_offsets(asked, timeout=_ASK_BOUNDS_TIMEOUT_S)
        except module.KafkaException as error:
            self._outages.warn(f"it is not known which offsets {topic}[{partition}] has: {error}")
            return None
        return int(low), int(end)

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit an offset for the group. A failure is only logged: later commits include it."""
        with self._lock:
            client = self._inquirer("commit", {})
        module = confluent(self._transform)
        asked = module.TopicPartition(topic, partition, offset)
        try:
            (done,) = client.commit(offsets=[asked], asynchronous=False)
        except module.KafkaException as error:
            LOG.warning("%s: %s[%d] cannot be committed: %s", *self._of(topic, partition), error)
            return
        if done.error is not None:
            LOG.warning(
                "%s: %s[%d] cannot be committed: %s", *self._of(topic, partition), done.error
            )

    def _of(self, topic: str, partition: int) -> tuple[str, str, int]:
        return self._transform, topic, partition

    def close(self) -> None:
        """Close the consumers in the pool, and the clients for queries and commits."""
        with self._lock:
            parked = [each for several in self._parked.values() for each in several]
            inquirers = [*self._inquirers.values()]
            self._parked.clear()
            self._inquirers.clear()
        for each in parked:
            each.consumer.close()
        for client in inquirers:
            client.close()

    def _inquirer(self, use: str, more: Mapping[str, Any]) -> Any:
        """Return the client without partitions for a use, opened once. The lock is held."""
        if use not in self._inquirers:
            config = {**of_inquiries(self._config), **more}
            self._inquirers[use] = open_consumer(config, self._transform, self._outages)
        return self._inquirers[use]

    def _close_idle(self) -> None:
        old_s = time.monotonic() - _IDLE_S
        with self._lock:
            idle = [
                (key, each)
                for key, several in self._parked.items()
                for each in several
                if each.since_s < old_s
            ]
            for key, each in idle:
                self._parked[key].remove(each)
        for _, each in idle:
            each.consumer.close()

"""What brokers are asked about partitions, by clients that have none."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import LOG, Outages, confluent, open_consumer
from beam_spark_runner.transforms.kafka.config import of_inquiries

_ASK_END_EVERY_S = 1.0
_ASK_END_TIMEOUT_S = 1.0
_ASK_AGAIN_S = 3.0
_ASK_GONE_EVERY_S = 10.0
_ASK_GONE_AGAIN_S = 30.0
_GONE_S = 60.0  # not all brokers know a new topic at once
_LONGEST_GAP_S = 600.0  # between two queries over which a topic counts as missing
_ASK_BOUNDS_TIMEOUT_S = 30.0
_INQUIRERS: Mapping[str, Mapping[str, Any]] = {
    "end": {"isolation.level": "read_uncommitted"},
    "commit": {},
}
"""The uses of clients without partitions, and the settings of each."""


@dataclass
class _End:
    """The end of a partition's log, as a broker reported it.

    Attributes:
        offset: The offset after the last record. -1: the broker did not answer.
        since_us: When the broker was asked, in microseconds since the Unix epoch.
        asked_s: When the broker was asked, in seconds of the monotonic clock.
        missing_s: Since when brokers report that there is no such topic or partition, in seconds
            of the monotonic clock. None: they do not report that.
    """

    offset: int
    since_us: int
    asked_s: float
    missing_s: float | None = None


class Inquiries:
    """Asks brokers where partitions end, and whether they exist; and commits offsets.

    The answers serve all readers of one transform in this process.

    Threads: any.

    Args:
        config: The user's configuration.
        transform: The label of the transform, for errors.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._config, self._transform = config, transform
        self._lock = threading.Lock()
        self._outages = Outages(transform)
        self._ends: dict[tuple[str, int], _End] = {}
        self._unanswered_s = -_ASK_GONE_AGAIN_S
        self._known_ends: dict[tuple[str, int], int] = {}
        self._silences: dict[tuple[str, int, int], float] = {}
        self._inquirers: dict[str, Any] = {}

    def note_end(self, topic: str, partition: int, end: int) -> None:
        """Note the offset after the last record that a consumer of the partition knows of.

        Args:
            topic: The topic.
            partition: The number of the partition.
            end: The offset; -1: the consumer knows of none.
        """
        if end >= 0:
            with self._lock:
                self._known_ends[topic, partition] = end

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
        end = self._ends.get((topic, partition))
        if end is None or time.monotonic() >= end.asked_s + (
            _ASK_AGAIN_S if end.offset < 0 else _ASK_END_EVERY_S
        ):
            end = self._ask_end(topic, partition, end)
        return end.offset, end.since_us

    def is_gone(self, topic: str, partition: int) -> bool:
        """Whether brokers have reported for a minute that there is no such topic or partition.

        False unless this process has read from it: after a restart with other brokers, these may
        never have had it. If ``end_of`` is not called, brokers are asked only now and then, since
        other partitions wait meanwhile.
        """
        if self.known_end_of(topic, partition) < 0:
            return False
        now_s = time.monotonic()
        end = self._ends.get((topic, partition))
        if (
            end is None or now_s >= end.asked_s + _ASK_GONE_EVERY_S
        ) and now_s >= self._unanswered_s + _ASK_GONE_AGAIN_S:
            end = self._ask_end(topic, partition, end)
        if end is None or end.missing_s is None:
            return False
        return end.asked_s - end.missing_s > _GONE_S

    def _ask_end(self, topic: str, partition: int, previous: _End | None) -> _End:
        """Ask for the end of a partition's log; ``previous`` is what was known of it."""
        module = confluent(self._transform)
        asked_us = time.time_ns() // 1000
        try:
            end = _End(self._end(topic, partition), asked_us, time.monotonic())
        except module.KafkaException as error:
            self._outages.warn(
                f"it is unknown whether {topic}[{partition}] has more records, so its watermark "
                f"does not advance, except with ProcessingTime: {error}"
            )
            now_s = time.monotonic()
            missing_s = None
            if error.args[0].name() in error_names.NOT_THERE:
                missing_s = now_s
                if previous is not None and now_s < previous.asked_s + _LONGEST_GAP_S:
                    missing_s = previous.missing_s or now_s
            else:
                self._unanswered_s = now_s
            end = _End(-1, 0, now_s, missing_s)
        with self._lock:
            self._ends[topic, partition] = end
        return end

    def silence(self, topic: str, partition: int, offset: int, more_s: float) -> float:
        """Add to the time for which readers have waited in vain for an offset, and return it.

        Args:
            topic: The topic.
            partition: The number of the partition.
            offset: The offset.
            more_s: The seconds for which the caller has waited since its last call.

        Returns:
            The seconds of all readers in this process since ``end_silence``.
        """
        with self._lock:
            silent_s = self._silences.get((topic, partition, offset), 0.0) + more_s
            self._silences[topic, partition, offset] = silent_s
        return silent_s

    def end_silence(self, topic: str, partition: int, offset: int) -> None:
        """Forget that nothing has come for an offset, and that the partition was missing."""
        with self._lock:
            self._silences.pop((topic, partition, offset), None)
            end = self._ends.get((topic, partition))
            if end is not None and end.missing_s is not None:
                del self._ends[topic, partition]

    def _end(self, topic: str, partition: int) -> int:
        module = confluent(self._transform)
        topic_partition = module.TopicPartition(topic, partition)
        for is_last_try in (False, True):
            try:
                with self._inquirer("end") as client:
                    end: int = client.get_watermark_offsets(
                        topic_partition, timeout=_ASK_END_TIMEOUT_S
                    )[1]
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
        module = confluent(self._transform)
        topic_partition = module.TopicPartition(topic, partition)
        try:
            with self._inquirer("end") as client:
                low, end = client.get_watermark_offsets(
                    topic_partition, timeout=_ASK_BOUNDS_TIMEOUT_S
                )
        except module.KafkaException as error:
            self._outages.warn(f"it is not known which offsets {topic}[{partition}] has: {error}")
            return None
        return int(low), int(end)

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit an offset for the group. A failure is only logged: later commits include it."""
        module = confluent(self._transform)
        topic_partition = module.TopicPartition(topic, partition, offset)
        try:
            with self._inquirer("commit") as client:
                (answer,) = client.commit(offsets=[topic_partition], asynchronous=False)
        except module.KafkaException as error:
            LOG.warning("%s: %s[%d] cannot be committed: %s", *self._of(topic, partition), error)
            return
        if answer.error is not None:
            LOG.warning(
                "%s: %s[%d] cannot be committed: %s", *self._of(topic, partition), answer.error
            )

    def _of(self, topic: str, partition: int) -> tuple[str, str, int]:
        return self._transform, topic, partition

    def close(self) -> None:
        """Close the clients."""
        with self._lock:
            inquirers = [*self._inquirers.values()]
            self._inquirers.clear()
        for client in inquirers:
            client.close()

    @contextmanager
    def _inquirer(self, use: str) -> Iterator[Any]:
        """Yield the client without partitions for a use, opened once; then run its callbacks."""
        with self._lock:
            client = self._inquirers.get(use)
            if client is None:
                config = {**of_inquiries(self._config), **_INQUIRERS[use]}
                client = open_consumer(config, self._transform, Outages(self._transform))
                self._inquirers[use] = client
        try:
            yield client
        finally:
            client.poll(0)  # otherwise its errors and log lines pile up

"""Consumers of single partitions, which stay open from one bundle to the next."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_spark_runner.transforms.kafka.inquiries import Inquiries
from beam_spark_runner.transforms.kafka.partition_consumer import PartitionConsumer

_IDLE_S = 60.0


@dataclass
class _Parked:
    consumer: PartitionConsumer
    since_s: float


class Consumers:
    """The pool of one transform's consumers in this process.

    Threads: any. Between ``borrow`` and ``give_back``, only the caller uses a consumer.

    Args:
        config: The user's configuration.
        transform: The label of the transform, for errors.

    Attributes:
        inquiries: What brokers are asked about the partitions.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._config, self._transform = config, transform
        self._lock = threading.Lock()
        self._parked: dict[tuple[str, int], list[_Parked]] = {}
        self.inquiries = Inquiries(config, transform)

    def borrow(self, topic: str, partition: int, offset: int) -> PartitionConsumer:
        """Return a consumer at an offset, if possible one of the pool that has stopped there."""
        with self._lock:
            parked = self._parked.get((topic, partition), [])
            at = [entry for entry in parked if entry.consumer.position == offset]
            entries = (at or parked)[-1:]
            for entry in entries:
                parked.remove(entry)
        self._close_idle()
        if not entries:
            return PartitionConsumer(self._config, self._transform, topic, partition, offset)
        consumer = entries[0].consumer
        if consumer.position != offset:
            consumer.seek(offset)
        return consumer

    def give_back(self, topic: str, partition: int, consumer: PartitionConsumer) -> None:
        """Return a consumer to the pool, for the next bundle."""
        self.inquiries.note_end(topic, partition, consumer.known_end())
        with self._lock:
            parked = self._parked.setdefault((topic, partition), [])
            parked.append(_Parked(consumer, time.monotonic()))

    def close(self) -> None:
        """Close the consumers in the pool, and the clients of inquiries."""
        with self._lock:
            parked = [entry for several in self._parked.values() for entry in several]
            self._parked.clear()
        for entry in parked:
            entry.consumer.close()
        self.inquiries.close()

    def _close_idle(self) -> None:
        old_s = time.monotonic() - _IDLE_S
        with self._lock:
            idle = [
                (key, entry)
                for key, several in self._parked.items()
                for entry in several
                if entry.since_s < old_s
            ]
            for key, entry in idle:
                self._parked[key].remove(entry)
        for _, entry in idle:
            entry.consumer.close()

"""Reads the counts that a contender writes, while it runs, and checks them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.kafka.load import Counts, is_end
from integration.kafka_broker import Broker

_TIMEOUT_S = 300.0


class Results:
    """The counts in a topic, from its beginning. Later counts of a window and key replace earlier.

    Attributes:
        counts: The last count of each window and key.

    Args:
        broker: The broker of the topic.
        topic: The topic, which exists.
        partitions: The number of its partitions.
        check: Raises if the contender will write no more.
    """

    def __init__(
        self, broker: Broker, topic: str, partitions: int, check: Callable[[], None]
    ) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                **broker.config,
                "group.id": "results",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "fetch.error.backoff.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        self._check = check
        self.counts: Counts = {}
        self._sum = 0

    def arrivals(self, total: int) -> Iterator[tuple[tuple[int, bytes], int, float]]:
        """Yield counts as they arrive: window and key, count, Unix time; until all have arrived.

        Args:
            total: The sum of all final counts.

        Raises:
            RuntimeError: No more counts arrive.
        """
        until_s = time.time() + _TIMEOUT_S
        while self._sum < total:
            messages = self._consumer.consume(1000, 0.01)
            now_s = time.time()
            if messages:
                until_s = now_s + _TIMEOUT_S
            else:
                self._check()
            if now_s > until_s:
                raise RuntimeError(
                    f"{self._sum:,} of {total:,} have been counted, and no more come"
                )
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                key = message.key()
                if is_end(key):
                    continue
                window, count = map(int, message.value().split())
                self._sum += count - self.counts.get((window, key), 0)
                self.counts[window, key] = count
                yield (window, key), count, now_s

    def check(self, expected: Counts) -> None:
        """Check every count.

        Raises:
            RuntimeError: one is wrong.
        """
        if self.counts == expected:
            return
        wrong = {
            each: (self.counts.get(each), expected.get(each))
            for each in self.counts.keys() | expected.keys()
            if self.counts.get(each) != expected.get(each)
        }
        some = dict(list(wrong.items())[:5])
        raise RuntimeError(f"{len(wrong):,} counts are wrong; found and expected: {some}")

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

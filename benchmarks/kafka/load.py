"""Generates records for the contenders, and the counts that they must compute."""

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from integration.kafka_broker import Broker

WINDOW_S = 60
_STRIDE = 7919  # neighbours have other keys
_END = b"end"
_END_AFTER_S = 3600

Counts = dict[tuple[int, bytes], int]
"""By the window's start, seconds since the Unix epoch, and the key."""


@dataclass(frozen=True)
class Shape:
    """The shape of a topic's records.

    Attributes:
        keys: The number of keys.
        partitions: The number of partitions, which get records in turn.
        value_bytes: The size of each value.
    """

    keys: int
    partitions: int
    value_bytes: int

    def key(self, number: int) -> bytes:
        """Return the key of a record."""
        return b"%06d" % (number * _STRIDE % self.keys)


def fill(broker: Broker, topic: str, shape: Shape, count: int, windows: int) -> Counts:
    """Write records with timestamps in past windows; return the count of each window and key.

    The last record of each partition has a separate key and is an hour later: it closes the
    windows.
    """
    broker.create(topic, shape.partitions)
    span_ms = windows * WINDOW_S * 1000
    first_ms = (int(time.time()) // WINDOW_S * WINDOW_S - 3 * _END_AFTER_S) * 1000
    value = bytes(shape.value_bytes)
    producer = _producer(broker)
    expected: Counter[tuple[int, bytes]] = Counter()
    for number in range(count):
        at_ms = first_ms + number * span_ms // count
        key = shape.key(number)
        _produce(producer, topic, value, key, number % shape.partitions, at_ms)
        expected[at_ms // 1000 // WINDOW_S * WINDOW_S, key] += 1
    for partition in range(shape.partitions):
        end_ms = first_ms + span_ms + _END_AFTER_S * 1000
        _produce(producer, topic, b"", _END, partition, end_ms)
    _flush(producer)
    return dict(expected)


def is_end(key: bytes) -> bool:
    """Whether a key is that of the records that close windows."""
    return key == _END


class Flow(threading.Thread):
    """Writes records at a fixed rate, and stores when each was made.

    It first writes the records of one second, and waits for a result: a new query needs some time
    to start.

    Attributes:
        made: The Unix times of records in order, by window and key. Other threads may read it.
        seen: An event to set when the first result has arrived.
        began_s: The Unix time at which it has continued after that.
        count: The number of records that it writes in all.

    Args:
        broker: The broker of the topic.
        topic: The topic, which exists.
        shape: The shape of records.
        rate: The records per second.
        seconds: How long it writes after the first result.
    """

    began_s = 0.0

    def __init__(self, broker: Broker, topic: str, shape: Shape, rate: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic, self._shape = broker, topic, shape
        self._rate = rate
        self.count = rate + int(rate * seconds)
        self.seen = threading.Event()
        self.made: dict[tuple[int, bytes], list[float]] = defaultdict(list)

    def run(self) -> None:
        """See ``Thread``."""
        producer = _producer(self._broker, linger_ms=0)
        self._write(producer, range(self._rate))
        self.seen.wait()
        self.began_s = time.time()
        self._write(producer, range(self._rate, self.count))

    def _write(self, producer: Any, numbers: range) -> None:
        value = bytes(self._shape.value_bytes)
        began_s = time.time()
        for number in numbers:
            while time.time() < began_s + (number - numbers.start) / self._rate:
                producer.poll(0.001)
            at_s = time.time()
            at_ms = int(at_s * 1000)
            key = self._shape.key(number)
            self.made[at_ms // 1000 // WINDOW_S * WINDOW_S, key].append(at_s)
            partition = number % self._shape.partitions
            _produce(producer, self._topic, value, key, partition, at_ms)
        _flush(producer)

    def counts(self) -> Counts:
        """Return the count of each window and key, once all records are written."""
        return {window_key: len(times) for window_key, times in self.made.items()}


def _producer(broker: Broker, linger_ms: int = 20) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            **broker.config,
            "linger.ms": linger_ms,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
        }
    )


def _produce(
    producer: Any, topic: str, value: bytes, key: bytes, partition: int, at_ms: int
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, timestamp=at_ms)
            return
        except BufferError:
            producer.poll(0.1)


def _flush(producer: Any) -> None:
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"the broker has not confirmed {left} records")

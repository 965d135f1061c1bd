"""Converts elements to records for a producer, and assigns these to shards."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.records import ProducerRecord

Outgoing = tuple[
    str | None,
    int | None,
    bytes | None,
    bytes | None,
    int | None,
    list[tuple[str, bytes | None]],
]
"""Topic, partition, key, value, timestamp (milliseconds), headers of a record.

It is a tuple because the coder of tuples is the same in all versions."""


@dataclass(frozen=True)
class Conversion:
    """Converts elements to records.

    Attributes:
        topic: The topic of records that name none. None: all must name one.
        key_serializer: Converts keys to bytes. None: they are bytes.
        value_serializer: Converts values to bytes. None: they are bytes.
        transform: The label of the transform, for errors.
    """

    topic: str | None
    key_serializer: Callable[[Any], bytes] | None
    value_serializer: Callable[[Any], bytes] | None
    transform: str

    def __call__(self, element: Any) -> Outgoing:
        """Convert an element.

        Raises:
            KafkaAccessError: The element is neither a pair nor a ``ProducerRecord``, names no
                topic, or its key, value or timestamp is invalid.
        """
        if isinstance(element, ProducerRecord):
            topic, partition = element.topic or self.topic, element.partition
            key, value = element.key, element.value
            timestamp = element.timestamp
            headers = [(name, content) for name, content in element.headers]
        elif isinstance(element, tuple) and len(element) == 2:
            key, value = element
            topic, partition, timestamp, headers = self.topic, None, None, []
        else:
            raise KafkaAccessError(
                f"an element is neither a pair of key and value nor a ProducerRecord: {element!r}",
                self.transform,
            )
        if timestamp is not None and timestamp < 1:  # librdkafka takes 0 for the current time
            raise KafkaAccessError(
                f"a timestamp is {timestamp}, but must be at least 1", self.transform
            )
        if topic is None:
            raise KafkaAccessError(
                f"an element names no topic, and neither does the transform: {element!r}",
                self.transform,
            )
        key = self._bytes("key", key, self.key_serializer)
        value = self._bytes("value", value, self.value_serializer)
        return topic, partition, key, value, timestamp, headers

    def _bytes(
        self, name: str, given: Any, serializer: Callable[[Any], bytes] | None
    ) -> bytes | None:
        made = given if given is None or serializer is None else serializer(given)
        if made is None or isinstance(made, bytes):
            return made
        source = "" if serializer is None else f" that {name}_serializer has returned"
        raise KafkaAccessError(
            f"a {name}{source} is not bytes, but {type(made).__name__}: {made!r}. "
            f"{name}_serializer must be a function that returns bytes, such as str.encode",
            self.transform,
        )


def shard_of(record: Outgoing, shards: int, turn: int) -> int:
    """Return the shard of a record: records with the same partition, or else key, share one.

    Args:
        record: The record.
        shards: The number of shards.
        turn: A counter that chooses the shard of a record with neither partition nor key.
    """
    _, partition, key, _, _, _ = record
    if partition is not None:
        return partition % shards
    return (turn if key is None else zlib.crc32(key)) % shards

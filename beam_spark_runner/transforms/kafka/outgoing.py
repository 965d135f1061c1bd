"""Elements to records that are on their way to a topic."""

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
"""Topic, partition, key, value, timestamp, headers. A tuple has a coder that does not change."""


@dataclass(frozen=True)
class Conversion:
    """How elements become records.

    Attributes:
        topic: of records that name none; None: all must name one.
        key_serializer: None: keys are bytes.
        value_serializer: None: values are bytes.
        transform: for errors.
    """

    topic: str | None
    key_serializer: Callable[[Any], bytes] | None
    value_serializer: Callable[[Any], bytes] | None
    transform: str

    def __call__(self, element: Any) -> Outgoing:
        """Convert an element.

        Raises:
            KafkaAccessError: it is neither a pair nor a ``ProducerRecord``, or has other types.
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
        if timestamp is not None and timestamp < 1:  # 0 is the time of writing, to librdkafka
            raise KafkaAccessError(f"a timestamp is {timestamp}, less than 1", self.transform)
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
            f"a {name}{source} is no bytes, but {type(made).__name__}: {made!r}. "
            f"{name}_serializer is a function that returns bytes, such as str.encode",
            self.transform,
        )


def shard_of(record: Outgoing, shards: int, turn: int) -> int:
    """Return the shard of a record: all of one key, or of one given partition, have the same.

    Args:
        record: to write.
        shards: how many there are.
        turn: decides if it has neither.
    """
    _, partition, key, _, _, _ = record
    if partition is not None:
        return partition % shards
    return (turn if key is None else zlib.crc32(key)) % shards

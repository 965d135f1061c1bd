"""Converts elements to records for a producer, and assigns these to shards."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
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


_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_MAX_MS = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_OF_EACH_BATCH = 61  # bytes in front of its records
_OF_EACH_RECORD = 36  # bytes that librdkafka counts in addition to key, value and headers


@dataclass(frozen=True)
class Conversion:
    """Converts elements to records that producers take.

    Exactly-once writes store records before they are written. A record that no producer takes would
    stop the pipeline at each start, so all that is known without brokers is checked here.

    Attributes:
        topic: The topic of records that name none. None: all must name one.
        key_serializer: Converts keys to bytes. None: they are bytes.
        value_serializer: Converts values to bytes. None: they are bytes.
        transform: The label of the transform, for errors.
        most_bytes: The largest size of a record, as librdkafka counts it. None: it is not checked.

    Raises:
        KafkaAccessError: Kafka allows no topic of this name.
    """

    topic: str | None
    key_serializer: Callable[[Any], bytes] | None
    value_serializer: Callable[[Any], bytes] | None
    transform: str
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.topic is not None:
            self._checked_topic(self.topic)

    def __call__(self, element: Any) -> Outgoing:
        """Convert an element.

        Raises:
            KafkaAccessError: The element is neither a pair nor a ``ProducerRecord``, names no
                topic, one of its fields is invalid, or it is too large.
        """
        is_record = isinstance(element, ProducerRecord)
        if not is_record and not (isinstance(element, tuple) and len(element) == 2):
            raise KafkaAccessError(
                f"an element is neither a pair of key and value nor a ProducerRecord: {element!r}",
                self.transform,
            )
        own_topic = element.topic if is_record else None
        topic = self._checked_topic(own_topic) if own_topic else self.topic
        if topic is None:
            raise KafkaAccessError(
                f"an element names no topic, and neither does the transform: {element!r}",
                self.transform,
            )
        key, value = (element.key, element.value) if is_record else element
        key = self._bytes("key", key, self.key_serializer)
        value = self._bytes("value", value, self.value_serializer)
        partition, timestamp, headers = None, None, []
        if is_record:
            partition = self._number(topic, "partition", element.partition, 0, _MAX_PARTITION)
            timestamp = self._number(topic, "timestamp", element.timestamp, 1, _MAX_MS)
            headers = [self._header(topic, header) for header in element.headers]
        record = topic, partition, key, value, timestamp, headers
        if self.most_bytes is not None and (size := size_of(record)) > self.most_bytes:
            raise self._wrong(
                topic,
                f"it has {size} bytes, but message.max.bytes is {self.most_bytes}: increase "
                "message.max.bytes in producer_config, and max.message.bytes of the topic",
            )
        return record

    def _checked_topic(self, topic: Any) -> str:
        if isinstance(topic, str) and _TOPIC.fullmatch(topic):
            return topic
        raise KafkaAccessError(
            f"a topic is {topic!r}, but must be a text of 1 to 249 letters (a to z, A to Z), "
            "digits, dots, underscores and hyphens. None: the topic of the transform",
            self.transform,
        )

    def _number(self, topic: str, name: str, value: Any, least: int, most: int) -> int | None:
        # librdkafka treats the timestamp 0 as the current time, and a negative partition as None.
        if value is None:
            return None
        if not isinstance(value, bool) and isinstance(value, Integral):
            number = int(value)
            if least <= number <= most:
                return number
        raise self._wrong(
            topic,
            f"a {name} is {value!r}, but must be at least {least} and at most {most}, and an int. "
            "None: the producer chooses",
        )

    def _header(self, topic: str, header: Any) -> tuple[str, bytes | None]:
        match header:
            case (str(name), bytes() | None as content) if _is_unicode(name):
                return name, content
            case (str(name), str(text)) if _is_unicode(name) and _is_unicode(text):
                return name, text.encode()
        raise self._wrong(
            topic,
            f"a header is {header!r}, but must be a pair of name and value: a text, and bytes, a "
            "text or None. Texts must not contain lone surrogates",
        )

    def _wrong(self, topic: str, problem: str) -> KafkaAccessError:
        return KafkaAccessError(f"a record for topic {topic}: {problem}", self.transform)

    def _bytes(
        self, name: str, value: Any, serializer: Callable[[Any], bytes] | None
    ) -> bytes | None:
        content = value if value is None or serializer is None else serializer(value)
        if content is None or isinstance(content, bytes):
            return content
        source = "" if serializer is None else f" that {name}_serializer has returned"
        raise KafkaAccessError(
            f"a {name}{source} is not bytes, but {type(content).__name__}: {content!r}. "
            f"{name}_serializer must be a function that returns bytes, such as str.encode",
            self.transform,
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def size_of(record: Outgoing) -> int:
    """Return the size of a record that librdkafka compares with ``message.max.bytes``.

    Source: ``rd_kafka_msg_max_wire_size`` and ``rd_kafka_header_add`` of librdkafka.
    """
    _, _, key, value, _, headers = record
    size = _OF_EACH_RECORD + len(key or b"") + len(value or b"")
    for name, content in headers:
        for part in (name.encode(), content or b""):
            size += len(part) + _size_of_varint(len(part))
    return size


def size_alone(record: Outgoing) -> int:
    """Return the size of a batch of this record alone, which brokers compare with their limit.

    Source: the format of record batches in Kafka's documentation (magic 2), without compression.
    """
    _, _, key, value, _, headers = record
    size = 1 + 2 * _size_of_varint(0)  # attributes, and differences to the first record
    size += _size_of_varint(len(headers))
    for part in (key, value):
        size += _size_of_varint(-1) if part is None else _size_of_varint(len(part)) + len(part)
    for name, content in headers:
        coded = name.encode()
        size += _size_of_varint(len(coded)) + len(coded)
        size += _size_of_varint(-1) if content is None else _size_of_varint(len(content))
        size += len(content or b"")
    return _OF_EACH_BATCH + _size_of_varint(size) + size


def _size_of_varint(number: int) -> int:
    """Return the number of bytes of a number as a varint, whose last bit is the sign."""
    return max(1, -(-(2 * number).bit_length() // 7))


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

"""Records as elements of a pipeline."""

from collections.abc import Sequence
from typing import NamedTuple

from apache_beam import coders


class KafkaHeader(NamedTuple):
    """A header of a record. Names may repeat within a record."""

    key: str
    value: bytes | None


class KafkaRecord(NamedTuple):
    """An element of ``ReadFromKafka(with_metadata=True)``.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        offset: The offset in the partition.
        timestamp: Milliseconds since the Unix epoch. -1: the record has no timestamp.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or ``NoTimestampType``.
        key: The key. None: the record has no key.
        value: The value. None: the record is a tombstone.
        headers: The headers in order.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[KafkaHeader]


class ProducerRecord(NamedTuple):
    """An element of ``WriteToKafka``, for records that are more than pairs of key and value.

    Attributes:
        value: The value. None: the record is a tombstone.
        key: The key. It determines the partition, unless ``partition`` is set.
        topic: The topic. None: that of the transform.
        partition: The number of the partition. None: the producer's partitioner chooses.
        timestamp: Milliseconds since the Unix epoch, at least 1. None: the time of writing.
        headers: Names and values, in order.
    """

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class _ProducerRecordCoder(coders.Coder):  # type: ignore[misc]
    """Encodes records with keys and values of any type, which serializers convert later."""

    def __init__(self) -> None:
        self._coder = coders.FastPrimitivesCoder()

    def encode(self, value: ProducerRecord) -> bytes:
        headers = tuple((name, content) for name, content in value.headers)
        coded: bytes = self._coder.encode((*value[:5], headers))
        return coded

    def decode(self, encoded: bytes) -> ProducerRecord:
        return ProducerRecord(*self._coder.decode(encoded))

    def is_deterministic(self) -> bool:
        return False


coders.registry.register_coder(KafkaHeader, coders.RowCoder)
coders.registry.register_coder(KafkaRecord, coders.RowCoder)
coders.registry.register_coder(ProducerRecord, _ProducerRecordCoder)

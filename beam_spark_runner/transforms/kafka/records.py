"""Records as elements of a pipeline."""

from collections.abc import Sequence
from typing import NamedTuple

from apache_beam import coders


class KafkaHeader(NamedTuple):
    """A header of a record. Names may repeat within a record."""

    key: str
    value: bytes | None


class KafkaRecord(NamedTuple):
    """What ``ReadFromKafka(with_metadata=True)`` gives.

    Attributes:
        topic: its topic.
        partition: of the topic.
        offset: in the partition.
        timestamp: milliseconds since the Unix epoch; -1: it has none.
        timestamp_type: ``CreateTime``, ``LogAppendTime`` or ``NoTimestampType``.
        key: None: it has none.
        value: None: it is a tombstone.
        headers: in order.
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
    """What ``WriteToKafka`` takes besides pairs of key and value.

    Attributes:
        value: None: a tombstone.
        key: decides on the partition, unless that is given.
        topic: None: the transform's.
        partition: None: the partitioner of the producer chooses.
        timestamp: milliseconds since the Unix epoch, at least 1; None: the time of writing.
        headers: names and values, in order.
    """

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class _ProducerRecordCoder(coders.Coder):  # type: ignore[misc]
    """Encodes what serializers may still have to make bytes of: any keys and values."""

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

"""Records as elements of a pipeline."""

from collections.abc import Sequence
from typing import NamedTuple

from apache_beam import coders


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
        headers: names and values, in order; names may repeat.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class ProducerRecord(NamedTuple):
    """What ``WriteToKafka`` takes besides pairs of key and value.

    Attributes:
        value: None: a tombstone.
        key: decides on the partition, unless that is given.
        topic: None: the transform's.
        partition: None: the partitioner of the producer chooses.
        timestamp: milliseconds since the Unix epoch; None: the time at which it is written.
        headers: names and values, in order.
    """

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


for _row in (KafkaRecord, ProducerRecord):
    coders.registry.register_coder(_row, coders.RowCoder)

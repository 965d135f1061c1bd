"""What one partition's consumer returns, over messages that are given."""

from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.transforms.kafka import error_names, partition_consumer
from beam_spark_runner.transforms.kafka.partition_consumer import OutOfRangeError, PartitionConsumer
from tests.unit.transforms.kafka.messages import Record


class End:
    """What librdkafka reports once when all has been read. The last offset is a marker's."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def error(self) -> "End":
        return self

    def name(self) -> str:
        return error_names.END_OF_PARTITION


class Client:
    """Stands for a consumer of ``confluent-kafka`` that has some messages."""

    def __init__(self, *messages: Any) -> None:
        self._messages = [*messages]

    def assign(self, partitions: Any) -> None: ...

    def consume(self, most: int, wait_s: float) -> list[Any]:
        found, self._messages = self._messages[:most], self._messages[most:]
        return found


def consumer_of(monkeypatch: pytest.MonkeyPatch, *messages: Any) -> PartitionConsumer:
    module = SimpleNamespace(TopicPartition=lambda *place: place)
    monkeypatch.setattr(partition_consumer, "confluent", lambda _: module)
    monkeypatch.setattr(partition_consumer, "open_consumer", lambda *_: Client(*messages))
    return PartitionConsumer({"bootstrap.servers": "nowhere"}, "Read", "topic", 0, 7)


def test_the_end_stays_known_when_records_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = consumer_of(monkeypatch, Record(7), Record(8), End(10))
    taken = consumer.poll(1000, 0)
    assert (len(taken), consumer.position, consumer.is_at_end) == (2, 10, True)
    consumer.put_back(taken)
    assert consumer.position == 7
    (first,) = consumer.poll(1, 0)
    assert consumer.position == 8
    consumer.put_back([first])
    assert len(consumer.poll(1000, 0)) == 2
    assert consumer.position == 10


class Gone(End):
    """What librdkafka reports if the next offset does not exist."""

    def name(self) -> str:
        return "OFFSET_OUT_OF_RANGE"

    def str(self) -> str:
        return "out of range"


def test_an_error_after_records_is_raised_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = consumer_of(monkeypatch, Record(7), Record(8), Gone(-1001))
    assert len(consumer.poll(1000, 0)) == 2
    assert (consumer.position, consumer.has_answered, consumer.is_at_end) == (9, True, False)
    with pytest.raises(OutOfRangeError, match="out of range"):
        consumer.poll(1000, 0)

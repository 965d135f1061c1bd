"""What the writer of a shard makes of brokers that refuse it, or do not answer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.transforms.kafka import record_producer, transactions
from beam_spark_runner.transforms.kafka.client import Outages
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.transactions import ShardWriter


class KafkaException(Exception):
    """As ``confluent-kafka`` has it: the only argument is a ``KafkaError``."""


def kafka_error(name: str, text: str) -> Any:
    return SimpleNamespace(
        name=lambda: name, str=lambda: text, fatal=lambda: False, retriable=lambda: True
    )


class Unserved:
    """A producer that no broker serves. It tells why when it is polled.

    Args:
        outages: What it tells it to.
        why: The reason.
        answers: Whether there is an answer at first, to the first query.
    """

    def __init__(self, outages: Outages, why: Any, *, answers: bool) -> None:
        self._outages, self._why, self._answers = outages, why, answers
        self.begun = 0

    def list_topics(self, topic: str, timeout_s: float) -> None:
        if not self._answers:
            raise KafkaException(kafka_error("_TRANSPORT", "no answer"))

    def init_transactions(self, timeout_s: float) -> None:
        self.begun += 1
        raise KafkaException(kafka_error("_TIMED_OUT", "retry call to resume"))

    def poll(self, wait_s: float) -> int:
        self._outages.report(self._why)
        return 1


Opened = Callable[..., Unserved]


@pytest.fixture
def unserved(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Return a function that has a writer opened, and returns its producer, which is in vain."""

    def opened(why: Any, problem: str, *, answers: bool) -> Unserved:
        producers: list[Unserved] = []

        def open_producer(config: Any, transform: str, outages: Outages) -> Unserved:
            producers.append(Unserved(outages, why, answers=answers))
            return producers[-1]

        monkeypatch.setattr(record_producer, "open_producer", open_producer)
        with pytest.raises(KafkaAccessError, match=problem):
            ShardWriter({}, "Write", "topic", "group-0")
        (producer,) = producers
        return producer

    module = SimpleNamespace(KafkaException=KafkaException)
    for each in (record_producer, transactions):
        monkeypatch.setattr(each, "confluent", lambda _: module)
    monkeypatch.setattr(transactions, "_RETRY_S", 0.2)
    return opened


@pytest.mark.parametrize(("answers", "begun"), [(False, 0), (True, 1)])
def test_a_refusal_is_an_error_at_once(unserved: Opened, answers: bool, begun: int) -> None:
    why = kafka_error("_AUTHENTICATION", "wrong password")
    producer = unserved(
        why, r"Write: a broker refuses this client: wrong password\. Check", answers=answers
    )
    assert producer.begun == begun


def test_brokers_that_are_not_reached_are_named(
    unserved: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    why = kafka_error("_TRANSPORT", "broker:9092: connection refused")
    problem = r"the transaction of group-0 cannot begin: retry call.*broker:9092: connection ref"
    producer = unserved(why, problem, answers=False)
    assert producer.begun > 1
    warnings = [each for each in caplog.messages if each.startswith("Write: Kafka:")]
    assert warnings == ["Write: Kafka: broker:9092: connection refused"]

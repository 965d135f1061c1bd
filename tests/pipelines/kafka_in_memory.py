"""Stands for ``confluent_kafka``: topics in this process, with transactions and their offsets."""

import contextlib
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from beam_spark_runner.transforms.kafka.outgoing import size_alone

MAX_BYTES = 1_000_000
_TOPIC_BYTES = 1_048_588


class KafkaException(Exception):
    """As ``confluent-kafka`` has it: the only argument is a ``KafkaError``."""


class TopicPartition:
    def __init__(self, topic: str, partition: int, offset: int = -1, metadata: str = "") -> None:
        self.topic, self.partition, self.offset = topic, partition, offset
        self.metadata, self.error = metadata, None


class Written(NamedTuple):
    """A record in a topic. ``by`` is the transactional id; empty: it was written without one."""

    topic: str
    key: bytes | None
    value: bytes | None
    by: str


class Kafka:
    """The brokers.

    Attributes:
        records: What can be read, in the order in which it was committed.
        limits: ``max.message.bytes`` of topics. Brokers refuse a record that is too large with all
            that are sent together with it.
        tells_limits: Whether ``max.message.bytes`` is among the settings of topics that they tell.
        missing: Topics that do not exist.
    """

    def __init__(self) -> None:
        self.records: list[Written] = []
        self.limits: dict[str, int] = {}
        self.missing: set[str] = set()
        self.tells_limits = True
        self._offsets: defaultdict[str, TopicPartition] = defaultdict(lambda: TopicPartition("", 0))

    def values(self, topic: str) -> list[bytes]:
        """Return the values of the records in a topic."""
        return [record.value or b"" for record in self.records if record.topic == topic]

    def producer(self, config: dict[str, Any], logger: Any) -> "Producer":
        return Producer(self, config)

    def consumer(self, config: dict[str, Any], logger: Any) -> "Consumer":
        return Consumer(self._offsets[config["group.id"]], config["group.id"])

    def admin(self, config: dict[str, Any]) -> "Admin":
        return Admin(self)

    def commit(self, group: str, offset: TopicPartition) -> None:
        self._offsets[group] = offset

    @contextlib.contextmanager
    def serving(self) -> Iterator["Kafka"]:
        """Take the place of the package in this process."""
        module = types.ModuleType("confluent_kafka")
        admin = types.ModuleType("confluent_kafka.admin")
        admin.__dict__.update(AdminClient=self.admin, ConfigResource=ConfigResource)
        module.__dict__.update(
            Producer=self.producer,
            Consumer=self.consumer,
            KafkaException=KafkaException,
            TopicPartition=TopicPartition,
            admin=admin,
        )
        loaded = {"confluent_kafka": module, "confluent_kafka.admin": module.admin}
        with mock.patch.dict(sys.modules, loaded):
            yield self


class ConfigResource(NamedTuple):
    kind: str
    topic: str


ConfigResource.Type = SimpleNamespace(TOPIC="topic")  # type: ignore[attr-defined]


class Admin:
    """Only tells the limits of topics."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Any]:
        return {each: self._done(each) for each in resources}

    def _done(self, resource: ConfigResource) -> "Future[dict[str, Any]]":
        future: Future[dict[str, Any]] = Future()
        if resource.topic in self._kafka.missing:
            future.set_exception(KafkaException(error("UNKNOWN_TOPIC_OR_PART")))
        elif not self._kafka.tells_limits:
            future.set_result({})
        else:
            limit = self._kafka.limits.get(resource.topic, _TOPIC_BYTES)
            future.set_result({"max.message.bytes": SimpleNamespace(value=str(limit))})
        return future


class Consumer:
    """Only queries what a group has committed."""

    def __init__(self, committed: TopicPartition, group: str) -> None:
        self._committed, self._group = committed, group

    def consumer_group_metadata(self) -> str:
        return self._group

    def committed(self, partitions: Any, timeout: float) -> list[TopicPartition]:
        return [self._committed]

    def close(self) -> None:
        pass


class Producer:
    """Writes at once, or with its transaction."""

    def __init__(self, kafka: Kafka, config: dict[str, Any]) -> None:
        self._kafka = kafka
        self._id: str = config.get("transactional.id", "")
        self._max_bytes = int(config.get("message.max.bytes", MAX_BYTES))
        self._queue: list[tuple[Written, Callable[[Any, Any], None]]] = []
        self._pending: list[Written] = []
        self._offsets: list[tuple[str, TopicPartition]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        on_delivery: Any = None,
        **more: Any,
    ) -> None:
        if len(value or b"") > self._max_bytes:
            raise KafkaException(error("MSG_SIZE_TOO_LARGE"))
        self._queue.append((Written(topic, key, value, self._id), on_delivery))

    def poll(self, wait_s: float) -> int:
        queue, self._queue = self._queue, []
        for record, on_delivery in queue:
            problem = self._problem(record.topic, [each for each, _ in queue])
            if problem is None:
                self._pending.append(record)
            on_delivery(problem, SimpleNamespace(topic=lambda record=record: record.topic))
        if not self._id:
            self.commit_transaction(0)
        return len(queue)

    def _problem(self, topic: str, together: list[Written]) -> Any:
        if topic in self._kafka.missing:
            return error("UNKNOWN_TOPIC_OR_PART")
        sizes = (
            size_alone((topic, None, each.key, each.value, None, []))
            for each in together
            if each.topic == topic
        )
        if max(sizes) > self._kafka.limits.get(topic, _TOPIC_BYTES):
            return error("MSG_SIZE_TOO_LARGE")
        return None

    def flush(self, wait_s: float) -> int:
        self.poll(wait_s)
        return 0

    def list_topics(self, topic: str, timeout_s: float) -> None:
        pass

    def init_transactions(self, timeout_s: float) -> None:
        pass

    def begin_transaction(self) -> None:
        self._pending, self._offsets = [], []

    def send_offsets_to_transaction(self, offsets: Any, group: str, timeout_s: float) -> None:
        self._offsets = [(group, offset) for offset in offsets]

    def commit_transaction(self, timeout_s: float) -> None:
        self._kafka.records += self._pending
        for group, offset in self._offsets:
            self._kafka.commit(group, offset)
        self._pending, self._offsets = [], []

    def abort_transaction(self, timeout_s: float) -> None:
        self._pending, self._offsets = [], []


def error(name: str) -> Any:
    """Return a ``KafkaError``."""
    return SimpleNamespace(
        name=lambda: name,
        str=lambda: f"Broker: {name}",
        fatal=lambda: False,
        retriable=lambda: False,
    )

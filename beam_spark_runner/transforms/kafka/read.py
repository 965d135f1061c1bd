"""``ReadFromKafka``: reads topics as bounded or unbounded PCollections."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from typing_extensions import override

from beam_spark_runner.transforms.kafka import config as configs
from beam_spark_runner.transforms.kafka.client import confluent
from beam_spark_runner.transforms.kafka.discovery import (
    DiscoverPartitions,
    FindPartitions,
    ReadSpec,
)
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.offsets import ELEMENT_TYPE
from beam_spark_runner.transforms.kafka.partitions import (
    ReadPartitions,
    ReadPartitionsAndCommit,
    ReadPartitionsForever,
    ReadPartitionsForeverAndCommit,
)
from beam_spark_runner.transforms.kafka.positions import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Position,
    position_of,
)
from beam_spark_runner.transforms.kafka.reading import Reading
from beam_spark_runner.transforms.kafka.records import KafkaRecord
from beam_spark_runner.transforms.kafka.timestamps import policy_of
from beam_spark_runner.transforms.kafka.topics import Topics

_NOT_HERE = {
    "max_num_records": "use stop, with offsets",
    "max_read_time": "use stop",
    "expansion_service": "leave it out, no Java is needed",
    "redistribute": "use beam.Reshuffle() after it",
    "redistribute_num_keys": "use beam.Reshuffle() after it",
    "allow_duplicates": "leave it out",
    "consumer_factory_fn_class": "use consumer_config",
    "consumer_factory_fn_params": "use consumer_config",
}
"""Arguments of ``apache_beam.io.kafka.ReadFromKafka`` that are not supported, and replacements."""


class ReadFromKafka(beam.PTransform):  # type: ignore[misc]
    """Reads topics of Kafka with ``confluent-kafka``, without Java.

    The elements are pairs of key and value, both bytes or None, or ``KafkaRecord``s. Without
    ``stop``, the collection is unbounded, and partitions that are added while the pipeline runs
    are read from their first record.

    Args:
        consumer_config: The configuration in librdkafka's names; at least ``bootstrap.servers``.
        topics: The names of topics. Exactly one of ``topics`` and ``topic_pattern`` is given.
        topic_pattern: A regular expression that the whole names of topics match.
        start: Where to begin in partitions that exist when the pipeline starts: ``earliest``,
            ``latest``, ``committed`` (the committed offsets of the ``group.id``; in partitions
            without one, ``auto.offset.reset``), a ``Timestamp`` (the first record of this time or
            later), or a dict of (topic, partition) to offset. Default: ``committed`` with a
            ``group.id``; otherwise ``auto.offset.reset``, whose default is ``latest``, or
            ``earliest`` with ``stop``.
        start_read_time: The same as a ``Timestamp``, in milliseconds since the Unix epoch.
        stop: Where to end: ``latest`` (the end when the pipeline starts), a ``Timestamp`` (the
            first record of this time or later is not read), or a dict as above.
        key_deserializer: A function that converts keys from bytes. None stays None.
        value_deserializer: A function that converts values from bytes. None stays None.
        with_metadata: Whether elements are ``KafkaRecord``s, with topic, partition, offset,
            timestamp and headers. Deserializers are not allowed then.
        timestamp_policy: ``ProcessingTime``, ``CreateTime``, ``LogAppendTime``, or an instance of
            one of the classes of these names or of ``EventTime``.
        commit_offset_in_finalize: Whether to commit offsets for the ``group.id`` after the
            pipeline has committed their elements, best effort.
        dynamic_read_poll_interval_seconds: How often to look for new partitions, and for topics
            that do not exist yet. None: only when the pipeline starts.
        consumer_polling_timeout: The seconds for which a new consumer waits for its first records.

    Raises:
        KafkaAccessError: The arguments contradict each other, the configuration has settings of
            Java clients, or the package ``confluent-kafka`` is missing.

    Example:
        p | ReadFromKafka({"bootstrap.servers": "broker:9092"}, topics=["orders"], start="earliest")
    """

    def __init__(
        self,
        consumer_config: Mapping[str, Any],
        topics: Sequence[str] = (),
        *,
        topic_pattern: str | None = None,
        start: Any = None,
        start_read_time: int | None = None,
        stop: Any = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        with_metadata: bool = False,
        timestamp_policy: Any = "ProcessingTime",
        commit_offset_in_finalize: bool = False,
        dynamic_read_poll_interval_seconds: float | None = 5.0,
        consumer_polling_timeout: float = 2.0,
        **others: Any,
    ) -> None:
        super().__init__()
        names = [topics] if isinstance(topics, str) else [*topics]
        self._name = f"ReadFromKafka({', '.join(names) or topic_pattern or ''})"
        self._refuse(others)
        if bool(names) == bool(topic_pattern):
            raise KafkaAccessError("give either topics or topic_pattern", self._name)
        for deserializer in key_deserializer, value_deserializer:
            if deserializer is not None and not callable(deserializer):
                raise KafkaAccessError(
                    f"{deserializer!r} is no function: deserializers are functions of bytes",
                    self._name,
                )
        if with_metadata and (key_deserializer or value_deserializer):
            raise KafkaAccessError(
                "with_metadata gives keys and values as bytes: deserialize them in a step after it",
                self._name,
            )
        config = configs.consumer_config(consumer_config, self._name)
        if commit_offset_in_finalize and "group.id" not in config:
            raise KafkaAccessError("commit_offset_in_finalize needs a group.id", self._name)
        reset = configs.offset_reset(config, self._name)
        self._stop = None
        if stop is not None:
            self._stop = position_of(stop, "stop", (LATEST,), self._name)
        self._sought = ReadSpec(
            Topics(names, topic_pattern, self._name),
            config,
            self._start(start, start_read_time, config, reset),
            self._stop,
            self._name,
        )
        self._reading = Reading(
            id=uuid.uuid4().hex,
            config=config,
            policy=policy_of(timestamp_policy, self._name),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            with_metadata=with_metadata,
            reset=None if reset == "error" else reset,
            polling_timeout_s=consumer_polling_timeout,
            commits=commit_offset_in_finalize,
            transform=self._name,
        )
        self._interval_s = dynamic_read_poll_interval_seconds

    def _refuse(self, others: Mapping[str, Any]) -> None:
        for name in others:
            if name not in _NOT_HERE:
                raise TypeError(f"ReadFromKafka has no argument {name}")
        if others:
            texts = "; ".join(f"{name}: {_NOT_HERE[name]}" for name in others)
            raise KafkaAccessError(f"arguments of Beam's Java transform: {texts}", self._name)

    def _start(
        self, start: Any, read_time: int | None, config: Mapping[str, Any], reset: str | None
    ) -> Position:
        if start is not None and read_time is not None:
            raise KafkaAccessError("give either start or start_read_time", self._name)
        if read_time is not None:
            return Position(time_ms=read_time)
        default = EARLIEST if self._stop is not None else LATEST
        if start is None and "group.id" not in config:
            return Position(default if reset in (None, "error") else reset)
        words = (EARLIEST, LATEST, COMMITTED)
        choice = COMMITTED if start is None else start
        position = position_of(choice, "start", words, self._name)
        if position.word == COMMITTED and "group.id" not in config:
            raise KafkaAccessError("start='committed' needs a group.id", self._name)
        return replace(position, reset=reset or default) if position.word == COMMITTED else position

    def default_label(self) -> str:
        """Return a label with the topics."""
        return self._name

    @override
    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        confluent(self._name)
        reading = self._reading
        find: beam.DoFn = FindPartitions(self._sought)
        if self._stop is None and self._interval_s is not None:
            find = DiscoverPartitions(self._sought, reading.policy, self._interval_s)
        if self._stop is not None:
            read = (ReadPartitionsAndCommit if reading.commits else ReadPartitions)(reading)
        elif reading.commits:
            read = ReadPartitionsForeverAndCommit(reading)
        else:
            read = ReadPartitionsForever(reading)
        return (
            begin
            | beam.Impulse()
            | "Find partitions" >> beam.ParDo(find).with_output_types(ELEMENT_TYPE)
            | "Read partitions" >> beam.ParDo(read).with_output_types(self._element_type())
        )

    def _element_type(self) -> Any:
        if self._reading.with_metadata:
            return KafkaRecord
        key: Any = bytes | None if self._reading.key_deserializer is None else Any
        value: Any = bytes | None if self._reading.value_deserializer is None else Any
        return tuple[key, value]

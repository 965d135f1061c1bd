"""``WriteToKafka``: writes PCollections to topics."""

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.delivery_guarantee import delivery_guarantee
from beam_spark_runner.transforms.dead_letters import (
    DEAD_LETTERS,
    WRITTEN,
    SinkOutputs,
    dead_letter,
    late_dead_letter,
)
from beam_spark_runner.transforms.kafka import config as configs
from beam_spark_runner.transforms.kafka.client import confluent
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.exactly_once import (
    ExactlyOnce,
    Sink,
    WriteExactlyOnce,
    checked,
)
from beam_spark_runner.transforms.kafka.outgoing import Conversion, Outgoing, size_of
from beam_spark_runner.transforms.kafka.record_producer import RecordProducer
from beam_spark_runner.transforms.kafka.topic_lineage import note_written

_MAX_REFUSED_BYTES = 16 << 20  # that wait to be sent again
_NOT_HERE = {
    "with_headers": "use ProducerRecord elements, which have headers",
    "expansion_service": "leave it out, no Java is needed",
}
"""Arguments of ``apache_beam.io.kafka.WriteToKafka`` that are not supported, and replacements."""


class WriteToKafka(beam.PTransform):  # type: ignore[misc]
    """Writes to topics of Kafka with ``confluent-kafka``, without Java.

    The elements are pairs of key and value, or ``ProducerRecord``s. By default, each is written at
    least once: a bundle ends when the brokers have confirmed its records; if it is retried, they
    are written again.

    Args:
        producer_config: The configuration in librdkafka's names; at least ``bootstrap.servers``.
            By default, records go to the same partitions as with Kafka's Java clients
            (``partitioner=murmur2_random``).
        topic: The topic of elements that name none. None: all elements name one.
        key_serializer: A function that converts keys to bytes. None stays None.
        value_serializer: A function that converts values to bytes. None stays None.
        exactly_once: Writes each record exactly once, in transactions, unless the pipeline has the
            option ``--delivery_guarantee=at_least_once``. None: at least once.

    Raises:
        KafkaAccessError: The configuration has settings of Java clients, the topic has a name that
            Kafka does not allow, or the package ``confluent-kafka`` is missing.

    Example:
        totals | WriteToKafka({"bootstrap.servers": "broker:9092"}, "totals",
                              exactly_once=ExactlyOnce(4, "totals-pipeline"))
    """

    def __init__(
        self,
        producer_config: Mapping[str, Any],
        topic: str | None = None,
        *,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
        exactly_once: ExactlyOnce | None = None,
        **others: Any,
    ) -> None:
        super().__init__()
        self._name = f"WriteToKafka({topic or ''})"
        for name in others:
            if name not in _NOT_HERE:
                raise TypeError(f"WriteToKafka has no argument {name}")
        if others:
            texts = "; ".join(f"{name}: {_NOT_HERE[name]}" for name in others)
            raise KafkaAccessError(f"arguments of Beam's Java transform: {texts}", self._name)
        for serializer in key_serializer, value_serializer:
            if serializer is not None and not callable(serializer):
                raise KafkaAccessError(
                    f"{serializer!r} is no function: serializers are functions that return bytes",
                    self._name,
                )
        self._rejects = False
        self._config = configs.producer_config(producer_config, self._name)
        most_bytes = None  # with at least once, the producer refuses what is too large
        self._sink = None
        if exactly_once is not None:
            place = checked(exactly_once, topic, self._name)
            most_bytes = configs.message_max_bytes(self._config, self._name)
            self._sink = Sink(uuid.uuid4().hex, self._config, place, exactly_once, self._name)
        self._conversion = Conversion(
            topic, key_serializer, value_serializer, self._name, most_bytes
        )

    def with_exception_handling(self) -> "WriteToKafka":
        """Return a transform that emits what it cannot write, in place of failing.

        Its result is a pair of collections, as that of ``ParDo.with_exception_handling``. The first
        one is empty. The second one has the elements that are not valid records, cannot be
        serialized, or are too large: pairs of element and failure. Missing topics, and brokers
        that are away or refuse the user, are errors all the same.

        Example:
            _, bad = totals | WriteToKafka(config, "totals").with_exception_handling()
        """
        rejecting = copy.copy(self)
        rejecting._rejects = True
        if self._sink is not None:
            rejecting._sink = replace(self._sink, rejects=True)
        return rejecting

    def default_label(self) -> str:
        """Return a label with the topic."""
        return self._name

    @override
    def expand(self, elements: beam.PCollection) -> Any:
        confluent(self._name)
        options = elements.pipeline.options
        given = options.get_all_options()
        is_once = delivery_guarantee(given.get("delivery_guarantee")) == "exactly_once"
        streams = not elements.is_bounded or bool(options.view_as(StandardOptions).streaming)
        written = None
        if self._sink is None or not is_once:
            written = self._send(elements)
        continues = given.get("checkpoint_dir") or given.get("savepoint_path")
        if self._sink is not None and (is_once or (streams and continues)):
            once = WriteExactlyOnce(
                self._sink,
                self._conversion,
                streams,
                rejects=self._rejects and is_once,
                numbers_new=is_once,
            )
            stored = elements | "Exactly once" >> once
            written = stored if written is None else written
        return written

    def _send(self, elements: beam.PCollection) -> Any:
        if not self._rejects:
            return elements | "Write" >> beam.ParDo(Send(self._config, self._conversion))
        send = beam.ParDo(SendOrReject(self._config, self._conversion))
        outputs = elements | "Write" >> send.with_outputs(DEAD_LETTERS, main=WRITTEN)
        return SinkOutputs(outputs[WRITTEN], outputs[DEAD_LETTERS])


class Send(beam.DoFn):  # type: ignore[misc]
    """Writes elements at least once.

    Args:
        config: The configuration of the producer.
        conversion: Converts elements to records.
    """

    def __init__(self, config: Mapping[str, Any], conversion: Conversion) -> None:
        self._config, self._conversion = dict(config), conversion

    def setup(self) -> None:
        """Open the producer."""
        self._delivery = RecordProducer(self._config, self._conversion.transform)

    def start_bundle(self) -> None:
        """Replace the producer if it has undelivered records of a bundle that has failed."""
        if not self._delivery.is_clean:
            self.setup()
        note_written(self._config, self._conversion.topic)

    def process(self, element: Any) -> Any:
        """Queue the record of an element."""
        self._delivery.send(self._conversion(element))

    def finish_bundle(self) -> Any:
        """Wait until the brokers have confirmed all records."""
        self._delivery.flush()


class SendOrReject(Send):
    """Writes elements at least once, and emits those that are refused as dead letters."""

    @override
    def start_bundle(self) -> None:
        """See ``Send``."""
        super().start_bundle()
        self._refused: list[tuple[WindowedValue, Outgoing]] = []
        self._refused_bytes = 0

    @override
    def process(self, element: Any, origin: Any = beam.DoFn.WindowedValueParam) -> Iterator[Any]:
        """Queue the record of an element, or emit a dead letter.

        ``WindowParam`` would have an element processed, and so written, once for each window.
        """
        # Beam multiplies the windows of a result by the number of those of the current element.
        if self._refused_bytes > _MAX_REFUSED_BYTES and len(origin.windows) == 1:
            yield from self._settled()
        try:
            record = self._conversion(element)
        except Exception as error:  # of a serializer, too
            yield dead_letter(element, error)
            return
        self._delivery.send(record, lambda _: self._refuse(origin, record))

    @override
    def finish_bundle(self) -> Iterator[Any]:
        """Wait until the brokers have confirmed or refused all records."""
        yield from self._settled()

    def _refuse(self, origin: WindowedValue, record: Outgoing) -> None:
        self._refused.append((origin, record))
        self._refused_bytes += size_of(record)

    def _settled(self) -> Iterator[TaggedOutput]:
        """Wait for all records; send those that were refused again, and yield dead letters.

        A broker refuses all records of a request together. So each is sent again, alone.
        """
        self._delivery.flush()
        refused, self._refused, self._refused_bytes = self._refused, [], 0
        for origin, record in refused:
            problems: list[KafkaAccessError] = []
            self._delivery.send(record, problems.append)
            self._delivery.flush()
            if problems:
                yield late_dead_letter(origin, problems[0])

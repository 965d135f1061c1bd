"""Producers, and what becomes of the records that they are given."""

from collections.abc import Callable, Mapping
from typing import Any

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import Outages, confluent, open_producer
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing

_SERVE_EVERY = 500  # records
_WAIT_S = 0.1


class Delivery:
    """A producer. One thread uses it.

    Attributes:
        producer: of ``confluent-kafka``.
        is_clean: all records that it was given are delivered.

    Args:
        config: of librdkafka.
        transform: for errors.

    Raises:
        KafkaAccessError: librdkafka does not take the configuration.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._module = confluent(transform)
        self._transform = transform
        self._outages = Outages(transform)
        self._failed: tuple[str, Any] | None = None
        self._count = 0
        self.is_clean = True
        self.producer = open_producer(config, transform, self._outages)

    def send(self, record: Outgoing) -> None:
        """Queue a record; wait while the queue is full.

        Raises:
            KafkaAccessError: this one cannot be queued, or an earlier one was not delivered.
        """
        topic, partition, key, value, timestamp, headers = record
        self.is_clean = False
        more: dict[str, Any] = {}
        if partition is not None:
            more["partition"] = partition
        if timestamp is not None:
            more["timestamp"] = timestamp
        if headers:
            more["headers"] = headers
        while True:
            try:
                self.producer.produce(topic, value=value, key=key, on_delivery=self._note, **more)
                break
            except BufferError:
                self._serve(self.producer.poll, _WAIT_S)
                self.check()
            except self._module.KafkaException as error:
                raise self._error(str(topic), error.args[0]) from error
        self._count += 1
        if self._count % _SERVE_EVERY == 0:
            self._serve(self.producer.poll, 0)
            self.check()

    def flush(self) -> None:
        """Wait until all records are delivered, or have not been for ``message.timeout.ms``.

        Raises:
            KafkaAccessError: one was not.
        """
        while self._serve(self.producer.flush, 1.0) and self._failed is None:
            self._outages.check()
        self.check()
        self.is_clean = True

    def check(self) -> None:
        """Raise if a record was not delivered."""
        if self._failed is not None:
            topic, error = self._failed
            raise self._error(topic, error) from self._module.KafkaException(error)
        self._outages.check()

    def _serve(self, function: Callable[[float], int], wait_s: float) -> int:
        """Have callbacks called.

        Raises:
            KafkaAccessError: the producer has failed for good.
        """
        try:
            return function(wait_s)
        except (self._module.KafkaException, SystemError) as error:
            # The client raises what is fatal, also while a callback returns.
            raise KafkaAccessError(
                f"the producer has failed: {error.__cause__ or error}", self._transform
            ) from error

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self._outages.worked()
        elif self._failed is None:
            self._failed = message.topic(), error

    def _error(self, topic: str, error: Any) -> KafkaAccessError:
        advice = error_names.ADVICE.get(error.name(), "")
        text = f"a record for topic {topic} was not written: {error.str()}"
        return KafkaAccessError(f"{text}; {advice}" if advice else text, self._transform)

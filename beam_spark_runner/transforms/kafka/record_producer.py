"""Producers, and the delivery reports of their records."""

from collections.abc import Callable, Mapping
from typing import Any

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import Outages, confluent, open_producer
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing

_SERVE_EVERY = 500  # records
_WAIT_S = 0.1
Refused = Callable[[KafkaAccessError], object]


class RecordProducer:
    """A producer that raises if a record is not delivered. Threads: one.

    Attributes:
        producer: The producer of ``confluent-kafka``.
        is_clean: Whether all records that were sent are delivered.

    Args:
        config: The configuration, in librdkafka's names.
        transform: The label of the transform, for errors.

    Raises:
        KafkaAccessError: librdkafka does not accept the configuration.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._module = confluent(transform)
        self._transform = transform
        self._outages = Outages(transform)
        self._failed: tuple[str, Any] | None = None
        self._count = 0
        self.is_clean = True
        self.producer = open_producer(config, transform, self._outages)

    def send(self, record: Outgoing, on_refusal: Refused | None = None) -> None:
        """Queue a record; wait while the queue is full.

        Args:
            record: The record.
            on_refusal: Is called with the error if the record itself is refused, now or before
                ``flush`` returns. None: this is an error.

        Raises:
            KafkaAccessError: The record cannot be queued, or an earlier one was not delivered.
        """
        note = self._note if on_refusal is None else self._noting_refusal(on_refusal)
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
                self.producer.produce(topic, value=value, key=key, on_delivery=note, **more)
                break
            except BufferError:
                self.serve(_WAIT_S)
            except self._module.KafkaException as error:
                problem = self._error(str(topic), error.args[0])
                if on_refusal is None or error.args[0].name() not in error_names.OF_RECORDS:
                    raise problem from error
                on_refusal(problem)
                return
        self._count += 1
        if self._count % _SERVE_EVERY == 0:
            self.serve()

    def flush(self) -> None:
        """Wait until all records are delivered, or one has failed, as after ``message.timeout.ms``.

        Raises:
            KafkaAccessError: A record was not delivered.
        """
        while self._serve(self.producer.flush, 1.0) and self._failed is None:
            self._outages.check()
        self.check()
        self.is_clean = True

    def serve(self, wait_s: float = 0.0) -> None:
        """Run the callbacks that are due; without any, wait for one.

        Args:
            wait_s: The longest wait, in seconds.

        Raises:
            KafkaAccessError: A record was not delivered, or a broker refuses this client.
        """
        self._serve(self.producer.poll, wait_s)
        self.check()

    @property
    def latest_problem(self) -> str:
        """The latest error that the client has reported about its brokers; empty: none."""
        return self._outages.latest

    def check(self) -> None:
        """Raise a KafkaAccessError if a record was not delivered, or the client is refused."""
        if self._failed is not None:
            topic, error = self._failed
            raise self._error(topic, error) from self._module.KafkaException(error)
        self._outages.check()

    def _serve(self, function: Callable[[float], int], wait_s: float) -> int:
        """Call ``poll`` or ``flush``, which run the callbacks; return its result.

        Raises:
            KafkaAccessError: The producer has failed fatally.
        """
        try:
            return function(wait_s)
        except (self._module.KafkaException, SystemError) as error:
            # A fatal error that is raised while a callback returns is the cause of a SystemError.
            raise KafkaAccessError(
                f"the producer has failed: {error.__cause__ or error}", self._transform
            ) from error

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self._outages.worked()
        elif self._failed is None:
            self._failed = message.topic(), error

    def _noting_refusal(self, on_refusal: Refused) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is not None and error.name() in error_names.OF_RECORDS:
                self._outages.worked()
                on_refusal(self._error(message.topic(), error))
            else:
                self._note(error, message)

        return note

    def _error(self, topic: str, error: Any) -> KafkaAccessError:
        advice = error_names.ADVICE.get(error.name(), "")
        text = f"a record for topic {topic} was not written: {error.str()}"
        return KafkaAccessError(f"{text}; {advice}" if advice else text, self._transform)

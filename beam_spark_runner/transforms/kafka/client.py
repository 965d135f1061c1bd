"""Clients of Kafka, which are imported when one is needed, and what their errors mean."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from beam_spark_runner.transforms.kafka.config import of_inquiries
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError

LOG = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0


def confluent(transform: str) -> Any:
    """Return the module ``confluent_kafka``.

    Raises:
        KafkaAccessError: it is not installed here.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise KafkaAccessError(
            "the package confluent-kafka is missing here; install it with "
            f"pip install 'beam-spark-runner[kafka]' ({error})",
            transform,
        ) from error
    return confluent_kafka


class Outages:
    """What a client reports of its brokers, once a minute as a warning.

    Threads: any.

    Args:
        transform: for the warnings.
    """

    def __init__(self, transform: str) -> None:
        self._transform = transform
        self._lock = threading.Lock()
        self._warned_s = -_WARN_EVERY_S
        self._fatal: Any = None

    def report(self, error: Any) -> None:
        """Take an error that concerns no record: librdkafka goes on trying, except after some."""
        kinds = type(error)
        if error.fatal() or error.code() in (kinds._AUTHENTICATION, kinds._SSL):
            self._fatal = error
        self.warn(error.str())

    def warn(self, problem: str) -> None:
        """Log a warning, unless there was one."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._warned_s < _WARN_EVERY_S:
                return
            self._warned_s = now_s
        LOG.warning("%s: Kafka: %s", self._transform, problem)

    def check(self) -> None:
        """Raise what does not end by itself.

        Raises:
            KafkaAccessError: a broker has refused this client.
        """
        if self._fatal is not None:
            raise KafkaAccessError(
                f"a broker refuses this client: {self._fatal.str()}. Check security.protocol, "
                "sasl.* and ssl.* of the configuration",
                self._transform,
            )


def open_consumer(config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    """Make a consumer.

    Raises:
        KafkaAccessError: librdkafka does not take its configuration.
    """
    return _open(confluent(transform).Consumer, config, transform, outages)


def open_producer(config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    """Make a producer. Raises as ``open_consumer``."""
    return _open(confluent(transform).Producer, config, transform, outages)


def _open(kind: Any, config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    try:
        return kind({**config, "error_cb": outages.report}, logger=LOG)
    except Exception as error:  # KafkaException, ValueError and TypeError, by what is wrong
        raise KafkaAccessError(f"the configuration cannot be used: {error}", transform) from error


class Inquirer:
    """Asks for topics and offsets.

    Attributes:
        client: a consumer of ``confluent-kafka`` that reads nothing.

    Args:
        client: see there.
        outages: that the client reports to.
        transform: for errors.
    """

    def __init__(self, client: Any, outages: Outages, transform: str) -> None:
        self.client = client
        self._outages, self._transform = outages, transform

    def topics(self, name: str | None, timeout_s: float) -> Mapping[str, Any]:
        """Return the metadata of one topic, or of all.

        Raises:
            KafkaAccessError: a broker refuses this client.
            KafkaException: none answers in time.
        """
        until_s = time.monotonic() + timeout_s
        only = {} if name is None else {"topic": name}
        while True:
            wait_s = min(1.0, max(0.1, until_s - time.monotonic()))
            try:
                found: Mapping[str, Any] = self.client.list_topics(timeout=wait_s, **only).topics
            except confluent(self._transform).KafkaException:
                self.client.poll(0)  # calls back with errors that explain it
                self._outages.check()
                if time.monotonic() >= until_s:
                    raise
            else:
                return found


@contextmanager
def inquirer(config: Mapping[str, Any], transform: str) -> Iterator[Inquirer]:
    """Have a consumer that asks for topics and offsets.

    Raises:
        KafkaAccessError: as ``open_consumer``; or a broker does not answer, or refuses.
    """
    outages = Outages(transform)
    consumer = open_consumer(of_inquiries(config), transform, outages)
    try:
        yield Inquirer(consumer, outages, transform)
    except confluent(transform).KafkaException as error:
        consumer.poll(0)  # calls back with errors that explain it
        outages.check()
        raise NoAnswerError.of(error, config, transform) from error
    finally:
        consumer.close()


class NoAnswerError(KafkaAccessError):
    """Kafka has not answered, or has answered with an error."""

    @classmethod
    def of(cls, error: Any, config: Mapping[str, Any], transform: str) -> "NoAnswerError":
        """Make one of a ``KafkaException``."""
        servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
        return cls(f"the brokers at {servers} do not answer as they should: {error}", transform)

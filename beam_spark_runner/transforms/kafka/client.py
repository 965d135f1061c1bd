"""Clients of Kafka, which are imported when one is needed, and what their errors mean."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.config import of_inquiries
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError

LOG = logging.getLogger(__name__)
_WARN_EVERY_S = 60.0
_TRY_S = 2.0
_PAUSE_S = 0.1
T = TypeVar("T")


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
            f"pip install 'confluent-kafka>=2.4' ({error})",
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
        self._has_worked = False

    def worked(self) -> None:
        """Note that a broker has served the client: what refuses it later may be passing."""
        self._has_worked = True

    def report(self, error: Any) -> None:
        """Take an error that concerns no record: librdkafka goes on trying, except after some."""
        is_refusal = error.name() in error_names.REFUSED
        if error.fatal() or (is_refusal and not self._has_worked):
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
        """Return the metadata of one topic, or of all. Raises as ``ask``."""
        only = {} if name is None else {"topic": name}
        found: Mapping[str, Any] = self.ask(
            lambda wait_s: self.client.list_topics(timeout=wait_s, **only).topics, timeout_s
        )
        return found

    def ask(self, call: Callable[[float], T], timeout_s: float) -> T:
        """Call a function of the client, again for as long as its errors are passing.

        Args:
            call: gets the time for one try, in seconds.
            timeout_s: for all of them.

        Raises:
            KafkaAccessError: a broker refuses this client.
            KafkaException: none answers in time, or the answer is an error.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                found = call(min(_TRY_S, max(0.1, until_s - time.monotonic())))
            except confluent(self._transform).KafkaException as error:
                self.client.poll(0)  # calls back with errors that explain it
                self._outages.check()
                if not is_passing(error.args[0]) or time.monotonic() >= until_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                self._outages.worked()
                return found


def is_passing(error: Any) -> bool:
    """Say whether a ``KafkaError`` ends by itself: a broker is starting, or leaders change."""
    return bool(error.retriable()) or error.name() in error_names.PASSING


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

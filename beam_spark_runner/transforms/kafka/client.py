"""Opens clients of Kafka, imports ``confluent_kafka`` when it is needed, and classifies errors."""

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
    """Import and return the module ``confluent_kafka``.

    Args:
        transform: The label of the transform, for errors.

    Raises:
        KafkaAccessError: It is not installed.
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
    """Handles the errors that a client reports about its brokers: warns, at most once a minute.

    Threads: any.

    Attributes:
        latest: The text of the latest error; empty: there was none.

    Args:
        transform: The label of the transform, for warnings and errors.
    """

    def __init__(self, transform: str) -> None:
        self.latest = ""
        self._transform = transform
        self._lock = threading.Lock()
        self._warned_s = -_WARN_EVERY_S
        self._fatal: Any = None
        self._has_worked = False

    def worked(self) -> None:
        """Record that a broker has served the client: a later refusal may be transient."""
        self._has_worked = True

    def report(self, error: Any) -> None:
        """Handle an error of librdkafka's ``error_cb``: warn, and keep a fatal one for ``check``.

        Failed authentication or TLS is fatal, too, unless the client has worked before.
        """
        is_refusal = error.name() in error_names.REFUSED
        if error.fatal() or (is_refusal and not self._has_worked):
            self._fatal = error
        self.latest = error.str()
        self.warn(self.latest)

    def warn(self, problem: str) -> None:
        """Log a warning, unless one was logged within the last minute."""
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._warned_s < _WARN_EVERY_S:
                return
            self._warned_s = now_s
        LOG.warning("%s: Kafka: %s", self._transform, problem)

    def check(self) -> None:
        """Raise if a fatal error was reported.

        Raises:
            KafkaAccessError: A broker has refused this client.
        """
        if self._fatal is not None:
            raise KafkaAccessError(
                f"a broker refuses this client: {self._fatal.str()}. Check security.protocol, "
                "sasl.* and ssl.* of the configuration",
                self._transform,
            )


def open_consumer(config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    """Open a consumer.

    Args:
        config: Its configuration, in librdkafka's names.
        transform: The label of the transform, for errors.
        outages: Gets the errors that the client reports.

    Raises:
        KafkaAccessError: librdkafka does not accept the configuration.
    """
    return _open(confluent(transform).Consumer, config, transform, outages)


def open_producer(config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    """Open a producer; see ``open_consumer`` for arguments and errors."""
    return _open(confluent(transform).Producer, config, transform, outages)


def _open(kind: Any, config: Mapping[str, Any], transform: str, outages: Outages) -> Any:
    try:
        return kind({**config, "error_cb": outages.report}, logger=LOG)
    except Exception as error:  # KafkaException, ValueError and TypeError, by what is wrong
        raise KafkaAccessError(f"the configuration cannot be used: {error}", transform) from error


class MetadataClient:
    """Queries brokers for topics and offsets, with retries.

    Attributes:
        client: A consumer of ``confluent-kafka`` without partitions.

    Args:
        client: See the attribute.
        outages: Gets the errors that the client reports.
        transform: The label of the transform, for errors.
    """

    def __init__(self, client: Any, outages: Outages, transform: str) -> None:
        self.client = client
        self._outages, self._transform = outages, transform

    def topics(self, name: str | None, timeout_s: float) -> Mapping[str, Any]:
        """Return the metadata of one topic, or of all, by name; see ``ask`` for errors."""
        only = {} if name is None else {"topic": name}
        topics: Mapping[str, Any] = self.ask(
            lambda wait_s: self.client.list_topics(timeout=wait_s, **only).topics, timeout_s
        )
        return topics

    def ask(self, call: Callable[[float], T], timeout_s: float) -> T:
        """Call a function of the client, and retry after transient errors.

        Args:
            call: The function, which gets the time limit of one attempt in seconds.
            timeout_s: The time limit of all attempts together.

        Raises:
            KafkaAccessError: A broker refuses this client.
            KafkaException: No broker answers in time, or the answer is an error.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                result = call(min(_TRY_S, max(0.1, until_s - time.monotonic())))
            except confluent(self._transform).KafkaException as error:
                self.client.poll(0)  # runs ``error_cb``, whose errors have the cause
                self._outages.check()
                if not is_passing(error.args[0]) or time.monotonic() >= until_s:
                    raise
                time.sleep(_PAUSE_S)
            else:
                self._outages.worked()
                return result


def is_passing(error: Any) -> bool:
    """Whether a ``KafkaError`` is transient: a broker is starting, or leaders change."""
    return bool(error.retriable()) or error.name() in error_names.PASSING


@contextmanager
def inquirer(config: Mapping[str, Any], transform: str) -> Iterator[MetadataClient]:
    """Open a consumer that queries topics and offsets, and close it on exit.

    Raises:
        KafkaAccessError: See ``open_consumer``; or a broker does not answer, or refuses the client.
    """
    outages = Outages(transform)
    consumer = open_consumer(of_inquiries(config), transform, outages)
    try:
        yield MetadataClient(consumer, outages, transform)
    except confluent(transform).KafkaException as error:
        consumer.poll(0)  # runs ``error_cb``, whose errors have the cause
        outages.check()
        raise NoAnswerError.of(error, config, transform) from error
    finally:
        consumer.close()


class NoAnswerError(KafkaAccessError):
    """Kafka has not answered, or has answered with an error."""

    @classmethod
    def of(cls, error: Any, config: Mapping[str, Any], transform: str) -> "NoAnswerError":
        """Return one with the cause ``error``, a ``KafkaException``."""
        servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
        return cls(f"the brokers at {servers} do not answer as they should: {error}", transform)

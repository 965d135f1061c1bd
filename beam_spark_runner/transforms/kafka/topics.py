"""Looks up the topics and partitions that a transform reads."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import LOG, MetadataClient
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError


class Topics:
    """The topics that a transform reads.

    Args:
        names: The names of topics; empty: those that match the pattern.
        pattern: A regular expression that the whole name of a topic must match.
        transform: The label of the transform, for errors.
    """

    def __init__(self, names: Sequence[str], pattern: str | None, transform: str) -> None:
        self._names = tuple(names)
        self._pattern = None if pattern is None else re.compile(pattern)
        self._transform = transform

    @override
    def __str__(self) -> str:
        return ", ".join(self._names) or f"topics like {self._pattern and self._pattern.pattern}"

    def partitions(self, asks: MetadataClient, timeout_s: float) -> dict[str, int]:
        """Return the number of partitions of each topic; 0: it does not exist.

        Args:
            asks: Queries the brokers.
            timeout_s: The time limit of each query.

        Raises:
            KafkaAccessError: A broker refuses the client, or access to a topic.
            KafkaException: The brokers do not answer.
        """
        if self._pattern is None:
            topics: dict[str, Any] = {}
            for name in self._names:
                topics |= asks.topics(name, timeout_s)
        else:
            topics = {
                name: topic
                for name, topic in asks.topics(None, timeout_s).items()
                if self._pattern.fullmatch(name)
            }
        return {name: self._count(name, topic) for name, topic in sorted(topics.items())}

    def _count(self, name: str, topic: Any) -> int:
        if topic.error is None:
            return len(topic.partitions)
        if topic.error.name() in error_names.NO_TOPIC:
            return 0
        raise KafkaAccessError(f"topic {name}: {topic.error.str()}", self._transform)


def warn_of_missing(partitions: Mapping[str, int], transform: str) -> None:
    """Log a warning that names the topics that do not exist."""
    if missing := [name for name, count in partitions.items() if not count]:
        LOG.warning("%s waits for topics that do not exist: %s", transform, ", ".join(missing))


def refuse_missing(partitions: Mapping[str, int], topics: Topics, transform: str) -> None:
    """Raise an error if a topic does not exist, or no topic matches.

    Raises:
        KafkaAccessError: The text names the missing topics.
    """
    missing = [name for name, count in partitions.items() if not count]
    if missing or not partitions:
        names = ", ".join(missing) or str(topics)
        raise KafkaAccessError(
            f"there is no {names}: create the topics first. A streaming read with "
            "dynamic_read_poll_interval_seconds waits for them",
            transform,
        )

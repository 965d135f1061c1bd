"""Reports topics that are read and written as Beam's sources and sinks report theirs."""

from collections.abc import Iterable, Mapping
from typing import Any

from apache_beam.metrics.metric import Lineage


def note_read(config: Mapping[str, Any], topics: Iterable[str]) -> None:
    """Report topics that are read. Called in a bundle."""
    _note(Lineage.sources(), config, topics)


def note_written(config: Mapping[str, Any], topic: str | None) -> None:
    """Report a topic that is written; None: records name theirs. Called in a bundle."""
    if topic is not None:
        _note(Lineage.sinks(), config, [topic])


def _note(lineage: Lineage, config: Mapping[str, Any], topics: Iterable[str]) -> None:
    servers = config.get("bootstrap.servers") or config.get("metadata.broker.list")
    for topic in topics:
        lineage.add("kafka", str(servers), topic)

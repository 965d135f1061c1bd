"""The data sets that a pipeline reads and writes, named as OpenLineage names them.

Spark tables are known from the graph; the sources and sinks of Beam report the others in metrics.

Names have no users, passwords or queries: whoever may see the lineage need not know those.

Source: OpenLineage "Naming", Beam ``apache_beam.metrics.metric.Lineage``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from beam_spark_runner.core.table_steps import (
    READ_TABLE,
    WRITE_TABLE,
    TableRead,
    TableWrite,
    database_of,
)
from beam_spark_runner.graph.model import Graph

_BUCKETS = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gcs": "gs", "gs": "gs"}
_CONTAINERS = {"abfs": "abfss", "abfss": "abfss", "wasb": "wasbs", "wasbs": "wasbs"}
"""Azure's: ``abfss://container@account``, where what is before ``@`` is no user."""
_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*):(//(?P<place>[^/]*))?(?P<path>/.*|$)", re.DOTALL)
_QUERY = re.compile(r"\?[\w.-]+=.*", re.DOTALL)  # a "?" alone stands for any character of a path
_JDBC = re.compile(r"jdbc:(?P<kind>\w+)://(?P<rest>[^?;]*)")
_HOST = r"([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?"
_DATABASE = re.compile(rf"(?P<place>{_HOST}(,{_HOST})*)(/(?P<database>.*))?")


class Dataset(NamedTuple):
    """A data set.

    Attributes:
        namespace: Where it is, such as ``s3://bucket`` or ``kafka://host:9092``.
        name: Its name there.
    """

    namespace: str
    name: str


class Datasets(NamedTuple):
    """What a pipeline reads and writes."""

    inputs: frozenset[Dataset] = frozenset()
    outputs: frozenset[Dataset] = frozenset()

    def __or__(self, others: "Datasets") -> "Datasets":
        return Datasets(self.inputs | others.inputs, self.outputs | others.outputs)


def tables_in(graph: Graph) -> Datasets:
    """Return the Spark tables of a pipeline; queries and DataFrames have no names."""
    reads = (
        TableRead.from_payload(step.payload)
        for step in graph.transforms.values()
        if step.urn == READ_TABLE
    )
    writes = (
        TableWrite.from_payload(step.payload)
        for step in graph.transforms.values()
        if step.urn == WRITE_TABLE
    )
    return Datasets(_known(map(_of_table, reads)), _known(map(_of_table, writes)))


def _of_table(table: TableRead | TableWrite) -> Dataset | None:
    if table.table:
        return Dataset("spark", table.table)
    if table.path:
        return _of_path(table.path)
    return _of_database(*database_of(table.options))


def _of_database(url: str, name: str) -> Dataset | None:
    match = _JDBC.match(url)
    if match is None or not name or name.startswith("("):  # a query
        return None
    # Of what is not surely a host, a part may be a password.
    found = _DATABASE.fullmatch(match["rest"].rpartition("@")[2])
    if found is None:
        return None
    kind = "postgres" if match["kind"] == "postgresql" else match["kind"]
    return Dataset(f"{kind}://{found['place']}", f"{found['database'] or ''}.{name}".lstrip("."))


def _of_path(path: str) -> Dataset:
    match = _URL.fullmatch(path)
    if match is None:
        return Dataset("file", path)
    scheme, place = match["scheme"], match["place"] or ""
    name = _QUERY.sub("", match["path"]).rstrip("/") or "/"
    if scheme in _CONTAINERS:
        return Dataset(f"{_CONTAINERS[scheme]}://{place}", name.lstrip("/") or "/")
    place = place.rpartition("@")[2]
    if scheme in _BUCKETS:
        return Dataset(f"{_BUCKETS[scheme]}://{place}", name.lstrip("/") or "/")
    if not place or (scheme, place) == ("file", "localhost"):
        return Dataset(scheme, name)
    return Dataset(f"{scheme}://{place}", name)


def reported(parts: Iterable[Sequence[str]]) -> frozenset[Dataset]:
    """Return the data sets that sources or sinks have reported.

    Args:
        parts: The parts of each name, as ``Lineage.add_raw`` has got them.

    Example:
        >>> reported([("kafka:", "host:9092.", "orders")])
        frozenset({Dataset(namespace='kafka://host:9092', name='orders')})
    """
    return _known(map(_of_parts, parts))


def _of_parts(parts: Sequence[str]) -> Dataset | None:
    if len(parts) < 2:
        return None
    system, place, rest = parts[0].rstrip(":"), parts[1].rstrip("."), "".join(parts[2:])
    if system == "filesystem":
        return Dataset("file", rest or place)
    if system in _BUCKETS:
        return Dataset(f"{_BUCKETS[system]}://{place}", rest or "/")
    if system == "kafka":
        return Dataset(f"kafka://{place.split(',')[0]}", rest)
    return Dataset(system, "".join(parts[1:]))


def _known(found: Iterable[Dataset | None]) -> frozenset[Dataset]:
    return frozenset(each for each in found if each is not None)

"""What ``ReadFromSpark`` and ``WriteToSpark`` ask of the runner: the payloads of their urns."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

READ_TABLE = "beam_spark_runner:transform:read_table:v1"
"""No input; gives Arrow batches, each as bytes. Its payload is a ``TableRead``."""
WRITE_TABLE = "beam_spark_runner:transform:write_table:v1"
"""Takes Arrow batches as bytes; gives one element, JSON. Its payload is a ``TableWrite``."""

MODES = ("append", "overwrite", "error", "ignore")
"""What a write does if its target exists. ``error`` is the default, as it is Spark's."""

WITHOUT_TYPES = ("csv", "json", "text", "xml")
"""Formats of files that do not store the types of their columns."""

FRAMES: dict[str, Any] = {}
"""DataFrames of this process that pipelines read, by the id that stands in their payloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """What is read. Exactly one of ``table``, ``query``, ``frame`` and ``path`` is set.

    Or only ``format``, of a data source that needs no path.

    Attributes:
        table: its name in a catalog, as Spark SQL takes it.
        query: a SELECT statement.
        frame: id of a DataFrame in ``FRAMES``.
        format: Spark's name of a data source, such as ``parquet`` or ``jdbc``; empty: Spark's
            default.
        path: of files or of a table in a folder.
        options: of the data source.
        columns: names or SQL expressions; empty: all columns.
        where: a SQL condition; empty: all rows.
        schema: Spark's JSON of the rows for which the pipeline was built; empty: it was built
            without knowing them.
    """

    table: str = ""
    query: str = ""
    frame: str = ""
    format: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    where: str = ""
    schema: str = ""

    def to_payload(self) -> bytes:
        """Encode it for a proto."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_payload(payload: bytes) -> "TableRead":
        """Decode what ``to_payload`` gave."""
        fields = json.loads(payload)
        return TableRead(**{**fields, "columns": tuple(fields["columns"])})

    def in_words(self) -> str:
        """Name the source, with the part of it that is read."""
        parts = [f"columns {', '.join(self.columns)}"] if self.columns else []
        parts += [f"where {self.where}"] if self.where else []
        return f"{self} ({'; '.join(parts)})" if parts else str(self)

    def __str__(self) -> str:
        """Name the source for people. Options may hold passwords and are left out."""
        return _place(self.table, self.path, self.format) or (
            f"the query {self.query!r}" if self.query else "a DataFrame of the program"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """What is written. ``table``, ``path``, ``format`` and ``options`` as in ``TableRead``.

    Attributes:
        mode: one of ``MODES``.
        partition_by: names of columns.
        schema: Spark's JSON of the rows that come.
        has_given_schema: the program has given it. If not, it comes from the types of Beam, which
            know less than Spark's: all decimals are alike.
    """

    table: str = ""
    format: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "error"
    partition_by: tuple[str, ...] = ()
    schema: str = ""
    has_given_schema: bool = False

    def to_payload(self) -> bytes:
        """Encode it for a proto."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_payload(payload: bytes) -> "TableWrite":
        """Decode what ``to_payload`` gave."""
        fields = json.loads(payload)
        return TableWrite(**{**fields, "partition_by": tuple(fields["partition_by"])})

    def __str__(self) -> str:
        """Name the target for people."""
        return _place(self.table, self.path, self.format)


def _place(table: str, path: str, format_: str) -> str:
    if table:
        return f"the table {table}"
    if path:
        return f"{format_ or 'files'} in {path}"
    return f"the data source {format_}" if format_ else ""


def database_of(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the URL of a database, and the name of its table; empty, if options do not say."""
    lower = {key.lower(): value for key, value in options.items()}
    return lower.get("url", ""), lower.get("dbtable", "")

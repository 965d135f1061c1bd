"""The URNs and payloads of the steps of ``ReadFromSpark`` and ``WriteToSpark``."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from typing_extensions import override

READ_TABLE = "beam_spark_runner:transform:read_table:v1"
"""Has no input, and emits Arrow batches as bytes. Its payload is a ``TableRead``."""
WRITE_TABLE = "beam_spark_runner:transform:write_table:v1"
"""Reads Arrow batches as bytes, and emits one element, JSON. Its payload is a ``TableWrite``."""

MODES = ("append", "overwrite", "error", "ignore")
"""What a write does if its target exists. The default is ``error``, as in Spark."""

WITHOUT_TYPES = ("csv", "json", "text", "xml")
"""Formats of files that do not store the types of their columns."""

FRAMES: dict[str, Any] = {}
"""DataFrames of this process that pipelines read, by the ids in payloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRead:
    """The source of a read. Exactly one of ``table``, ``query``, ``frame`` and ``path`` is set.

    For a data source that needs no path, only ``format`` is set.

    Attributes:
        table: The name of a table in a catalog, as in Spark SQL.
        query: A SELECT statement.
        frame: The id of a DataFrame in ``FRAMES``.
        format: Spark's name of a data source, such as ``parquet`` or ``jdbc``; empty: Spark's
            default.
        path: The path of files or of a table in a folder.
        options: The options of the data source.
        columns: Names or SQL expressions; empty: all columns.
        where: A SQL condition; empty: all rows.
        schema: The schema for which the pipeline was built, in Spark's JSON; empty: it was not
            known then.
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
        """Encode the read as the payload of a transform."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_payload(payload: bytes) -> "TableRead":
        """Decode a payload of ``to_payload``."""
        fields = json.loads(payload)
        return TableRead(**{**fields, "columns": tuple(fields["columns"])})

    def in_words(self) -> str:
        """Describe the source, with the columns and rows that are read."""
        parts = [f"columns {', '.join(self.columns)}"] if self.columns else []
        parts += [f"where {self.where}"] if self.where else []
        return f"{self} ({'; '.join(parts)})" if parts else str(self)

    @override
    def __str__(self) -> str:
        """Describe the source for people, without options, which may have passwords."""
        return _place(self.table, self.path, self.format) or (
            f"the query {self.query!r}" if self.query else "a DataFrame of the program"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The target of a write; ``table``, ``path``, ``format``, ``options`` as in ``TableRead``.

    Attributes:
        mode: One of ``MODES``.
        partition_by: The names of the columns by which the table is partitioned.
        schema: The schema of the rows to write, in Spark's JSON.
        has_given_schema: Whether the program has given the schema. Else it is derived from Beam's
            types, which are less precise than Spark's: all decimals have one type.
        keys: The names of the columns by which rows replace others; empty: they do not.
    """

    table: str = ""
    format: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "error"
    partition_by: tuple[str, ...] = ()
    schema: str = ""
    has_given_schema: bool = False
    keys: tuple[str, ...] = ()

    def to_payload(self) -> bytes:
        """Encode the write as the payload of a transform."""
        fields = asdict(self)
        if not self.keys:  # so that the payload is the one of earlier versions
            del fields["keys"]
        return json.dumps(fields).encode()

    @staticmethod
    def from_payload(payload: bytes) -> "TableWrite":
        """Decode a payload of ``to_payload``."""
        fields = json.loads(payload)
        names = {name: tuple(fields.get(name, ())) for name in ("partition_by", "keys")}
        return TableWrite(**{**fields, **names})

    @override
    def __str__(self) -> str:
        """Describe the target for people."""
        return _place(self.table, self.path, self.format)


def _place(table: str, path: str, format_: str) -> str:
    if table:
        return f"the table {table}"
    if path:
        return f"{format_ or 'files'} in {path}"
    return f"the data source {format_}" if format_ else ""


def database_of(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the URL of a database and the name of its table from options; empty if missing."""
    lower = {key.lower(): value for key, value in options.items()}
    return lower.get("url", ""), lower.get("dbtable", "")

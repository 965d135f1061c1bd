"""Materialised output of segments, as the cluster has it that reads it."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from beam_spark_runner.scheduling.attempts import Ambiguous, Attempts, Consumed, ambiguous_runs


class AmbiguousRowsError(Exception):
    """Rows that were read are of other task attempts than those accepted, or of several."""

    def __init__(self, verdict: Ambiguous) -> None:
        super().__init__(verdict)
        self.verdict = verdict


class ClusterRows(Protocol):
    """Rows of the engine that a cluster has, or computes when they are read.

    A cluster is given only rows that it has made itself.
    """

    def rows_for(self, dests: Iterable[int]) -> "ClusterRows":
        """Return the rows of some destinations, with the marks."""
        ...

    def united_with(self, other: "ClusterRows") -> "ClusterRows":
        """Return these rows and others, which have no rows in common."""
        ...

    def attempts(self) -> dict[int, Attempts]:
        """Return which attempts have made them, by run, as their marks say. Reads all rows."""
        ...


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows of materialised output.

    Attributes:
        rows: the rows.
        made_by: run (Spark job) -> the attempts that made them.
        returned: those for side inputs, as they have come to the driver; None: they are too many,
            and only ``rows`` has them.
        returns_all: whether ``returned`` has all rows, if it has any.
        sources: by partition: the attempts that have made its rows, by run. None: not known, or not
            the same each time that the rows are read.
    """

    rows: ClusterRows
    made_by: Consumed
    returned: tuple[pa.RecordBatch, ...] | None = None
    returns_all: bool = False
    sources: tuple[Consumed, ...] | None = None

    @staticmethod
    def union(parts: Sequence["OutputRows"]) -> "OutputRows":
        """Return the rows of all parts, which have no rows in common."""
        made_by: dict[int, Attempts] = {}
        returned: list[pa.RecordBatch] | None = []
        sources: tuple[Consumed, ...] | None = ()
        for part in parts:
            made_by.update(part.made_by)
            if sources is not None:
                sources = None if part.sources is None else sources + part.sources
            if returned is None or part.returned is None:
                returned = None
            else:
                returned += part.returned
        return OutputRows(
            functools.reduce(lambda all_, rows: all_.united_with(rows), [p.rows for p in parts]),
            made_by,
            None if returned is None else tuple(returned),
            all(part.returns_all for part in parts),
            sources,
        )

    def rows_for(self, dests: Iterable[int]) -> "OutputRows":
        """Return the rows of some destinations, with the marks."""
        return OutputRows(self.rows.rows_for(dests), self.made_by, sources=self.sources)

    def is_complete(self) -> bool:
        """Whether all rows can be read, and are those of ``made_by``. Reads all rows."""
        return not ambiguous_runs([self.rows.attempts()], self.made_by, is_exchanged=True)

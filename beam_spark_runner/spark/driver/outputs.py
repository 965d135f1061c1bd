"""Materialised output of segments as frames of the Spark session that reads it."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.scheduling.attempts import Ambiguous, Attempts, Consumed, ambiguous_runs
from beam_spark_runner.scheduling.outputs import SegmentOutput
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.materialise import FilesInSharedStorage


class AmbiguousRowsError(Exception):
    """Rows that were read are of other task attempts than those accepted, or of several."""

    def __init__(self, verdict: Ambiguous) -> None:
        super().__init__(verdict)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows of materialised output.

    Attributes:
        frame: reads them.
        made_by: run (Spark job) -> the attempts that made them.
        returned: those for side inputs, as the reports of these attempts have brought them; None:
            they are too many, and only ``frame`` has them.
        returns_all: whether ``returned`` has all rows, if it has any.
    """

    frame: DataFrame
    made_by: Consumed
    returned: tuple[bytes, ...] | None = None
    returns_all: bool = False

    @staticmethod
    def union(parts: Sequence["OutputRows"]) -> "OutputRows":
        """Return the rows of all parts, which have no rows in common."""
        made_by: dict[int, Attempts] = {}
        returned: list[bytes] | None = []
        for part in parts:
            made_by.update(part.made_by)
            if returned is None or part.returned is None:
                returned = None
            else:
                returned += part.returned
        return OutputRows(
            united([part.frame for part in parts]),
            made_by,
            None if returned is None else tuple(returned),
            all(part.returns_all for part in parts),
        )

    @staticmethod
    def reopen(output: SegmentOutput, storage: FilesInSharedStorage) -> "OutputRows":
        """Return the rows of output that this or another Spark session has materialised.

        Nothing is read yet; ``is_complete`` checks that all of it is there.

        Raises:
            ValueError: no rows were materialised, or they are on the executors of one session.
        """
        paths = [part.path for part in output.parts if part.path is not None]
        if not paths or not output.can_be_reopened:
            raise ValueError(f"this output is not in shared storage: {output.parts}")
        parts = [storage.reopen(path, frames.SCHEMA) for path in paths]
        return OutputRows(united(parts), output.made_by)

    def rows_for(self, dests: Iterable[int]) -> "OutputRows":
        """Return the rows of some destinations, with the marks."""
        wanted = ", ".join(map(str, (schema.CONTROL, *dests)))
        rows = self.frame.filter(f"(dest & {schema.DEST_MASK}) in ({wanted})")
        return OutputRows(rows, self.made_by)

    def is_complete(self) -> bool:
        """Whether all rows can be read, and are those of ``made_by``. Runs a Spark job."""
        return not ambiguous_runs(
            [frames.collect_marks(self.frame)], self.made_by, is_exchanged=True
        )


@dataclass(slots=True)
class Outputs:
    """The outputs of the segments of a plan that have run."""

    _outputs: dict[SegmentId, SegmentOutput] = field(default_factory=dict)
    _rows: dict[SegmentId, OutputRows] = field(default_factory=dict)

    def add(self, writer: SegmentId, output: SegmentOutput, rows: OutputRows | None) -> None:
        """Add the output of a segment. ``rows``: None if it has materialised none."""
        self._outputs[writer] = output
        if rows is not None:
            self._rows[writer] = rows

    def forget(self, writer: SegmentId) -> None:
        """Drop the output of a segment, if there is any."""
        self._outputs.pop(writer, None)
        self._rows.pop(writer, None)

    def rows_of(self, writer: SegmentId) -> OutputRows | None:
        """Return the rows that a segment has materialised; None if there are none."""
        return self._rows.get(writer)

    def bytes_of(self, writers: Iterable[SegmentId]) -> int:
        """Return the size of the outputs of segments, as Arrow holds them."""
        return sum(self._outputs[each].size_bytes for each in writers if each in self._outputs)

    def tasks_of(self, writers: Iterable[SegmentId]) -> int:
        """Return how many tasks have made the materialised rows of segments."""
        return sum(
            attempts.count
            for each in writers
            if each in self._outputs
            for attempts in self._outputs[each].made_by.values()
        )

    def writers_of(self, runs: Iterable[int]) -> frozenset[SegmentId]:
        """Return the segments that have materialised rows in these runs."""
        wanted = set(runs)
        return frozenset(
            writer
            for writer, output in self._outputs.items()
            if not wanted.isdisjoint(output.made_by)
        )

    def for_reader(self, reads: Mapping[DestinationId, Sequence[SegmentId]]) -> list[OutputRows]:
        """Return the rows that a segment reads.

        Args:
            reads: destination -> the segments that write its rows.
        """
        return [rows.rows_for(dests) for rows, dests in self._by_writer(reads)]

    def has_rows_for(self, reads: Mapping[DestinationId, Sequence[SegmentId]]) -> bool:
        """Whether any writer of what a segment reads has materialised rows."""
        return bool(self._by_writer(reads))

    def returned_for(
        self, reads: Mapping[DestinationId, Sequence[SegmentId]], limit_bytes: int
    ) -> list[pa.RecordBatch] | None:
        """Return the rows that a segment reads, if the reports have brought all of them.

        Args:
            reads: see ``for_reader``.
            limit_bytes: return None if they exceed this size.
        """
        found: list[pa.RecordBatch] = []
        for rows, dests in self._by_writer(reads):
            if rows.returned is None or not rows.returns_all:
                return None
            for coded in rows.returned:
                for batch in schema.decoded_batches(coded):
                    is_wanted = np.isin(schema.dests_of(batch), dests)
                    found.append(batch.filter(pa.array(is_wanted)))
        return found if sum(batch.nbytes for batch in found) <= limit_bytes else None

    def _by_writer(
        self, reads: Mapping[DestinationId, Sequence[SegmentId]]
    ) -> list[tuple[OutputRows, list[int]]]:
        """Return the rows of each writer, and the destinations that are read of them."""
        by_writer: dict[SegmentId, list[int]] = {}
        for dest, writers in reads.items():
            for writer in writers:
                if writer in self._rows:
                    by_writer.setdefault(writer, []).append(int(dest))
        return [(self._rows[writer], dests) for writer, dests in sorted(by_writer.items())]


def united(parts: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames."""
    # Not ``DataFrame.union``: Spark Connect's frames are of another class.
    return functools.reduce(lambda all_, part: all_.union(part), parts)

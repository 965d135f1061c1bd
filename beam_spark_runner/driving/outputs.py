"""The outputs of the segments of a plan that have run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.scheduling.segment_output import SegmentOutput

MAX_FED_BYTES = 1 << 20
"""How many bytes of rows a program may have, which is sent with each task."""
MAX_DRIVER_BYTES = 128 << 20
"""How many bytes of rows may be in the driver when another first task begins, which adds more."""


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
        self, reads: Mapping[DestinationId, Sequence[SegmentId]]
    ) -> list[pa.RecordBatch] | None:
        """Return the rows that a segment reads, if all of them have come to the driver.

        Args:
            reads: see ``for_reader``.

        Returns:
            The rows; None: Spark has some of them, or they are too many for a program.
        """
        found: list[pa.RecordBatch] = []
        for rows, dests in self._by_writer(reads):
            if rows.returned is None or not rows.returns_all:
                return None
            for batch in rows.returned:
                found.append(schema.rows_to(np.array(dests, np.int32), batch))
        return found if sum(batch.nbytes for batch in found) <= MAX_FED_BYTES else None

    def has_room_in_driver(self) -> bool:
        """Whether the driver has few enough rows of first tasks to take those of another one."""
        batches = (batch for rows in self._rows.values() for batch in rows.returned or ())
        size: int = sum(batch.nbytes for batch in batches)
        return size <= MAX_DRIVER_BYTES

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

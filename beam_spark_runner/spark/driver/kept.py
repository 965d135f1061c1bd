"""Rows that segments have kept for later ones, and which task attempts have made them."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.scheduling.attempts import Attempts, Consumed
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.marks import collect_marks


@dataclass(frozen=True, slots=True)
class Kept:
    """Materialised rows. ``made_by``: by the run (Spark job) that kept them."""

    frame: DataFrame
    made_by: Consumed

    @staticmethod
    def union(parts: Sequence["Kept"]) -> "Kept":
        """Return the rows of all. None of them twice."""
        made_by: dict[int, Attempts] = {}
        for part in parts:
            made_by.update(part.made_by)
        return Kept(united([part.frame for part in parts]), made_by)

    def rows_for(self, dests: Iterable[int]) -> "Kept":
        """Return the rows of some destinations, with the marks."""
        wanted = ", ".join(map(str, (schema.CONTROL, *dests)))
        return Kept(self.frame.filter(f"(dest & {schema.DEST_MASK}) in ({wanted})"), self.made_by)

    def is_whole(self) -> bool:
        """Whether all rows can be read, and are those that were kept. Runs a Spark job."""
        return collect_marks(self.frame) == self.made_by


@dataclass(slots=True)
class KeptRows:
    """What has been kept, by segment."""

    _kept: dict[SegmentId, Kept] = field(default_factory=dict)
    _bytes: dict[SegmentId, int] = field(default_factory=dict)

    def __contains__(self, writer: SegmentId) -> bool:
        return writer in self._kept

    def __getitem__(self, writer: SegmentId) -> Kept:
        return self._kept[writer]

    def keep(self, writer: SegmentId, kept: Kept, size_bytes: int) -> None:
        """Note what a segment has made."""
        self._kept[writer] = kept
        self._bytes[writer] = size_bytes

    def forget(self, writer: SegmentId) -> None:
        """Drop what a segment has made, if it has made anything."""
        self._kept.pop(writer, None)
        self._bytes.pop(writer, None)

    def bytes_of(self, writers: Iterable[SegmentId]) -> int:
        """Return the size of what these have made, as Arrow holds it."""
        return sum(self._bytes.get(writer, 0) for writer in writers)

    def writers_of(self, runs: Iterable[int]) -> frozenset[SegmentId]:
        """Return the segments that have kept rows of these runs."""
        wanted = set(runs)
        return frozenset(
            writer for writer, kept in self._kept.items() if not wanted.isdisjoint(kept.made_by)
        )

    def for_reader(self, reads: Mapping[DestinationId, Sequence[SegmentId]]) -> list[Kept]:
        """Return the rows that a segment reads.

        Args:
            reads: destination -> who writes its rows.
        """
        by_writer: dict[SegmentId, list[int]] = {}
        for dest, writers in reads.items():
            for writer in writers:
                if writer in self._kept:
                    by_writer.setdefault(writer, []).append(int(dest))
        return [self._kept[writer].rows_for(dests) for writer, dests in sorted(by_writer.items())]


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames."""
    # Not ``DataFrame.union``: Spark Connect's frames are of another class.
    return functools.reduce(lambda all_, frame: all_.union(frame), frames)

"""When tables are written: after all that does not read the result of a write.

So a pipeline that fails has written nothing, unless what fails follows a write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from beam_spark_runner.core.ids import DestinationId, SegmentId, StageId, TransformId
from beam_spark_runner.plan.layout import Edges
from beam_spark_runner.plan.model import Segment

SegmentKey = tuple[int, int, int]
"""Sorts segments: the two numbers of a ``Place``, and of the writes that follow it."""


@dataclass(slots=True)
class TableWrites:
    """The steps of a pipeline that write tables.

    Attributes:
        arriving: step -> the destination that gets its rows.
        makers: step -> the stages that send these rows.
    """

    arriving: dict[TransformId, DestinationId] = field(default_factory=dict)
    makers: dict[TransformId, tuple[StageId, ...]] = field(default_factory=dict)

    def count(self, edges: Edges, fed: Mapping[StageId, TransformId]) -> None:
        """Set ``edges.writes_before``.

        Args:
            edges: main and side inputs are known.
            fed: the stages whose elements come from the driver, and for which step.
        """
        for stage in map(StageId, range(edges.count)):  # makers come before their readers
            before = self._most(edges, (*edges.main[stage], *edges.side[stage]))
            write = fed.get(stage)
            if write in self.makers:
                before = max(before, self._most(edges, self.makers[write]) + 1)
            if before:
                edges.writes_before[stage] = before

    def keys(self, edges: Edges) -> dict[SegmentKey, TransformId]:
        """Return the key of the segment of each write: all that it may wait for sorts first."""
        return {
            (edges.end_after(self._most(edges, makers)), 0, number): write
            for number, (write, makers) in enumerate(self.makers.items())
        }

    def segment(
        self,
        id_: SegmentId,
        write: TransformId,
        segment_of: list[SegmentId],
        writes: list[dict[DestinationId, str]],
        step: str,
    ) -> Segment:
        """Return the segment of a write, and note which segments write its rows.

        Args:
            id_: of the segment.
            write: the step.
            segment_of: each stage.
            writes: what each segment materialises, and why.
            step: name of the step.
        """
        destination = self.arriving[write]
        makers = sorted({segment_of[maker] for maker in self.makers[write]})
        for maker in makers:
            writes[maker][destination] = f"written by segment {id_} ({step})"
        return Segment(
            id=id_,
            levels=(),
            reads={destination: tuple(makers)},
            writes={},
            table_write=write,
        )

    def _most(self, edges: Edges, stages: Iterable[StageId]) -> int:
        return max((edges.writes_before.get(stage, 0) for stage in stages), default=0)

"""Decides when tables are written: after all stages that do not depend on the result of a write.

So a pipeline that fails has written nothing, unless a stage that depends on a write fails.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from beam_spark_runner.core.ids import DestinationId, SegmentId, StageId, TransformId
from beam_spark_runner.plan.layout import Edges
from beam_spark_runner.plan.model import Segment

SegmentKey = tuple[int, int, int]
"""The sort key of a segment: the two numbers of ``Place.segment``, and the number of a write."""


@dataclass(slots=True)
class TableWrites:
    """The steps of a pipeline that write tables.

    Attributes:
        arriving: By step: the destination of the rows that it writes.
        producers: By step: the stages that make these rows.
    """

    arriving: dict[TransformId, DestinationId] = field(default_factory=dict)
    producers: dict[TransformId, tuple[StageId, ...]] = field(default_factory=dict)

    def count(self, edges: Edges, fed: Mapping[StageId, TransformId]) -> None:
        """Set ``edges.writes_before``.

        Args:
            edges: The edges, with main and side inputs.
            fed: By stage: the step for which the driver feeds it.
        """
        for stage in map(StageId, range(edges.count)):  # producers come before their readers
            writes = self._most(edges, (*edges.main[stage], *edges.side[stage]))
            write = fed.get(stage)
            if write in self.producers:
                writes = max(writes, self._most(edges, self.producers[write]) + 1)
            if writes:
                edges.writes_before[stage] = writes

    def keys(self, edges: Edges) -> dict[SegmentKey, TransformId]:
        """Return the write of each segment key; all segments that it may wait for sort first."""
        return {
            (edges.end_after(self._most(edges, producers)), 0, number): write
            for number, (write, producers) in enumerate(self.producers.items())
        }

    def segment(
        self,
        id_: SegmentId,
        write: TransformId,
        segment_of: list[SegmentId],
        writes: list[dict[DestinationId, str]],
        step: str,
    ) -> Segment:
        """Return the segment of a write, and add its rows to ``writes``.

        Args:
            id_: The id of the segment.
            write: The id of the step that writes.
            segment_of: The segment of each stage.
            writes: What each segment materialises, and why; the rows of this write are added.
            step: The name of the step.
        """
        destination = self.arriving[write]
        producers = sorted({segment_of[producer] for producer in self.producers[write]})
        for producer in producers:
            writes[producer][destination] = f"written by segment {id_} ({step})"
        return Segment(
            id=id_,
            levels=(),
            reads={destination: tuple(producers)},
            writes={},
            table_write=write,
        )

    def _most(self, edges: Edges, stages: Iterable[StageId]) -> int:
        return max((edges.writes_before.get(stage, 0) for stage in stages), default=0)

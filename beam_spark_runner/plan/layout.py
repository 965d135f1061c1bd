"""Chooses the segment and level of each stage. Works on numbers only."""

from dataclasses import dataclass, field
from typing import NamedTuple

from beam_spark_runner.core.ids import StageId


class StagePosition(NamedTuple):
    """The segment and level in which a stage runs."""

    segment: tuple[int, int]  # number by the order of inputs; then number after cuts by depth
    level: int  # within the segment; 0 is in front of its first exchange


@dataclass(slots=True)
class Edges:
    """The inputs of each stage. Lists are indexed by StageId; producers precede their readers."""

    count: int
    main: list[tuple[StageId, ...]] = field(default_factory=list)  # producers of the main input
    has_exchange: list[bool] = field(default_factory=list)  # in front of the stage
    side: list[tuple[StageId, ...]] = field(default_factory=list)  # producers of the side inputs
    is_stable: set[StageId] = field(default_factory=set)  # their main input must be complete first
    # By stage: the number of consecutive table writes on which it depends; missing: none.
    writes_before: dict[StageId, int] = field(default_factory=dict)

    def lag(self, stage: int) -> int:
        """Return how many segments the producers of the main input must be ahead of the stage."""
        return int(stage in self.is_stable)

    def end_after(self, writes: int) -> int:
        """Return the number of a segment after all stages that depend on so many writes."""
        return (writes + 1) * (self.count + 2) - 1

    def first(self, stage: int) -> int:
        """Return the first segment after the writes on which a stage depends."""
        return self.end_after(self.writes_before.get(StageId(stage), 0) - 1) + 1

    def last(self, stage: int) -> int:
        """Return the last segment before the next writes."""
        return self.end_after(self.writes_before.get(StageId(stage), 0)) - 1


def lay_out(
    edges: Edges,
    *,
    max_exchanges: int,
    max_destinations: int,
    moves_sources: bool = True,
    separates_levels: bool = False,
) -> list[StagePosition]:
    """Place every stage.

    Example:
        big -> enrich(side input small), small <- sum <- GroupByKey <- read
        ==>   segment 0: read, sum;   segment 1: big, enrich

    Args:
        edges: The edges between the stages.
        max_exchanges: The most exchanges in a segment.
        max_destinations: The most stages after one exchange.
        moves_sources: Whether stages without an exchange run in the segment of their readers, also
            after a cut by depth. Else they all run before the first exchange of the first segment.
        separates_levels: Whether each level is a segment. Sources are not moved then.

    Returns:
        One place per stage, by StageId. Segments run in the order of ``StagePosition.segment``.
    """
    segments = _as_late_as_readers_allow(edges, _as_soon_as_possible(edges))
    if separates_levels:
        return list(map(_in_its_segment, _levels(edges, segments, edges.count, max_destinations)))
    places = _levels(edges, segments, max_exchanges, max_destinations)
    return _sources_where_they_are_read(edges, places) if moves_sources else places


def _as_soon_as_possible(edges: Edges) -> list[int]:
    """Put a stage after the segments that make its side inputs, or a stable main input.

    It is also after all stages that depend on fewer table writes.
    """
    segments: list[int] = []
    for stage in range(edges.count):
        lag = edges.lag(stage)
        main = max((segments[producer] + lag for producer in edges.main[stage]), default=0)
        side = max((segments[producer] + 1 for producer in edges.side[stage]), default=0)
        segments.append(max(main, side, edges.first(stage)))
    return segments


def _as_late_as_readers_allow(edges: Edges, soonest: list[int]) -> list[int]:
    """Move producers to their readers' segment, where their rows need not be materialised.

    A main input that has nothing to do with the side input is then made in the
    same Spark job as it is read.
    """
    latest: list[int | None] = [None] * edges.count
    segments = [0] * edges.count
    for stage in reversed(range(edges.count)):
        bound = latest[stage]
        segment = soonest[stage] if bound is None else min(bound, edges.last(stage))
        segments[stage] = segment
        for producers, limit in (
            (edges.main[stage], segment - edges.lag(stage)),
            (edges.side[stage], segment - 1),
        ):
            for producer in producers:
                previous = latest[producer]
                latest[producer] = limit if previous is None else min(previous, limit)
    return segments


def _levels(
    edges: Edges, segments: list[int], max_exchanges: int, max_destinations: int
) -> list[StagePosition]:
    """Count exchanges from the start of each segment, and cut where there are too many.

    Level 0 has no exchange, so that it may have any number of stages. If a level is
    full, the next one is used; stages downstream move along, since they are placed later.
    """
    levels: list[int] = []
    filled: dict[tuple[int, int], int] = {}
    places: list[StagePosition] = []
    for stage in range(edges.count):
        segment, has_exchange = segments[stage], edges.has_exchange[stage]
        level = max(
            (
                levels[producer] + has_exchange
                for producer in edges.main[stage]
                if segments[producer] == segment
            ),
            default=int(has_exchange),
        )
        while level and filled.get((segment, level), 0) >= max_destinations:
            level += 1
        filled[segment, level] = filled.get((segment, level), 0) + 1
        levels.append(level)
        cut = max(level - 1, 0) // max_exchanges
        places.append(StagePosition(segment=(segment, cut), level=level - cut * max_exchanges))
    return places


def _in_its_segment(place: StagePosition) -> StagePosition:
    """Return a stage's place if each level of its segment becomes a segment."""
    number, _ = place.segment
    return StagePosition(segment=(number, place.level), level=min(place.level, 1))


def _sources_where_they_are_read(edges: Edges, places: list[StagePosition]) -> list[StagePosition]:
    """Move stages without an exchange to later segments of a cut, as far as their readers allow.

    At level 0, they add no exchange to the segment, and their rows need not be materialised.
    """
    positions = list(places)
    earliest: dict[int, tuple[int, int]] = {}
    for stage in reversed(range(edges.count)):
        if places[stage].level == 0:
            segment = max(places[stage].segment, earliest.get(stage, places[stage].segment))
            if segment[0] == places[stage].segment[0]:
                positions[stage] = StagePosition(segment=segment, level=0)
        for producer in edges.main[stage]:
            reader_segment = positions[stage].segment
            earliest[producer] = min(reader_segment, earliest.get(producer, reader_segment))
        for producer in edges.side[stage]:
            # Any segment before the reader's would do, but the last cut before it is unknown.
            limit = places[producer].segment
            earliest[producer] = min(limit, earliest.get(producer, limit))
    return positions

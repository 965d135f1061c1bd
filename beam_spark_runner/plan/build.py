"""Makes a plan of a fused graph: edges, then segments, then levels.

READ FIRST: ``plan/model.py``.
"""

import itertools
from collections.abc import Iterable, Mapping

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import (
    DestinationId,
    SegmentId,
    StageId,
    TransformId,
)
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.layout import Edges, StagePosition, lay_out
from beam_spark_runner.plan.model import (
    Level,
    Plan,
    Segment,
)
from beam_spark_runner.plan.naming import step_list
from beam_spark_runner.plan.storing import with_stores
from beam_spark_runner.plan.wiring import Wiring

MAX_EXCHANGES_PER_SEGMENT = 12
"""A chain of 200 overflows the JVM's stack, and 20 break Spark Connect's client."""
MAX_DESTINATIONS_PER_LEVEL = 250
"""The destinations of an exchange share 8 bits of the hash that rows are sorted by."""


def build(
    graph: Graph,
    *,
    max_exchanges: int = MAX_EXCHANGES_PER_SEGMENT,
    max_destinations: int = MAX_DESTINATIONS_PER_LEVEL,
    is_streaming: bool = False,
    separates_levels: bool = False,
) -> Plan:
    """Lay the stages of a fused graph out over Spark jobs.

    Stages share one Spark job as far as possible. A job ends where a side input
    must be complete before its readers start, where a step requires stable input, and where one
    job would have too many exchanges. If the plan streams, only the last is a reason.

    Args:
        graph: The graph after ``fuse``.
        max_exchanges: The most exchanges in one Spark job.
        max_destinations: The most stages after one exchange.
        is_streaming: See ``Plan``. If so, a stage gathers each side input, and no segment ends for
            one.
        separates_levels: Whether each level is a segment, so that a later start of the job can
            continue after it.

    Example:
        Read | GroupByKey | Format   ==>
        segment 0:  level 0 [Read];  exchange, level 1 [Format]
    """
    is_fused = bool(graph.stages) or all(
        transform.urn in facts.RUNNER_URNS for transform in graph.transforms.values()
    )
    if not is_fused:
        raise InvariantError("plan.build needs a graph that went through fuse")
    wiring = Wiring(graph, is_streaming=is_streaming)
    if is_streaming:
        wiring.add_views()
        wiring.stages = with_stores(wiring.stages, wiring.destinations.values())
    edges = wiring.edges()
    places = lay_out(
        edges,
        max_exchanges=max_exchanges,
        max_destinations=max_destinations,
        moves_sources=not is_streaming,
        separates_levels=separates_levels,
    )
    share = f"at most {max_exchanges} exchanges share a Spark job"
    if separates_levels:
        share = "each level is a Spark job, after which a later start can continue"
    return Plan(
        graph=graph,
        stages=wiring.stages,
        destinations=wiring.destinations,
        consumers={
            collection: tuple(destinations) for collection, destinations in wiring.consumers.items()
        },
        segments=_segments(wiring, edges, places, share),
        is_streaming=is_streaming,
    )


def _segments(
    wiring: Wiring, edges: Edges, places: list[StagePosition], share: str
) -> tuple[Segment, ...]:
    """Number the segments, and find which destinations are materialised between them."""
    table_writes = wiring.table_writes.keys(edges)
    keys = [(*place.segment, 0) for place in places]
    ids = {key: SegmentId(i) for i, key in enumerate(sorted({*keys, *table_writes}))}
    segment_of = [ids[key] for key in keys]
    levels: list[dict[int, list[StageId]]] = [{} for _ in ids]
    fed: list[dict[str, dict[DestinationId, TransformId]]] = [{} for _ in ids]
    reads: list[dict[DestinationId, set[SegmentId]]] = [{} for _ in ids]
    writes: list[dict[DestinationId, str]] = [{} for _ in ids]
    sides: list[dict[DestinationId, None]] = [{} for _ in ids]

    for id_, stage in wiring.stages.items():
        segment, destination = segment_of[id_], wiring.main[id_]
        levels[segment].setdefault(places[id_].level, []).append(id_)
        sides[segment].update(
            (side.destination, None)
            for side in stage.side_inputs
            if wiring.destinations[side.destination].stage is None
        )
        if (step := wiring.fed.get(destination)) is not None:
            urn = wiring.graph.transforms[step].urn
            fed[segment].setdefault(urn, {})[destination] = step
        for producer in edges.main[id_]:
            if segment_of[producer] == segment:
                continue
            why = _why(wiring, edges, places, segment_of, producer, id_, share)
            if wiring.is_streaming:
                reads[segment].setdefault(destination, set()).add(SegmentId(segment - 1))
                writers = range(segment_of[producer], segment)
            else:
                reads[segment].setdefault(destination, set()).add(segment_of[producer])
                writers = range(segment_of[producer], segment_of[producer] + 1)
            for writer in writers:
                writes[writer][destination] = why
    for destination, steps in wiring.readers.items():
        if wiring.destinations[destination].stage is not None:
            continue
        why = f"side input of {step_list(steps)}"
        for producer in wiring.producers.get(wiring.destinations[destination].arriving, ()):
            writes[segment_of[producer]][destination] = why

    of_tables = {
        ids[key]: wiring.table_writes.segment(
            ids[key], write, segment_of, writes, wiring.graph.transforms[write].step
        )
        for key, write in table_writes.items()
    }
    first_levels = itertools.accumulate(map(len, levels), initial=0)
    return tuple(
        of_tables.get(number)
        or Segment(
            id=number,
            first_level=first_level,
            levels=_levels(levels[number]),
            impulses=tuple(fed[number].get(urns.IMPULSE, ())),
            test_streams=tuple(fed[number].get(urns.TEST_STREAM, ())),
            tables=fed[number].get(READ_TABLE, {}),
            results=fed[number].get(WRITE_TABLE, {}),
            reads={d: tuple(sorted(segments)) for d, segments in reads[number].items()},
            writes=writes[number],
            side_inputs=tuple(sides[number]),
        )
        for number, first_level in zip(ids.values(), first_levels, strict=False)
    )


def _levels(stages: Mapping[int, Iterable[StageId]]) -> tuple[Level, ...]:
    return tuple(
        Level(has_exchange=level > 0, stages=tuple(stages[level])) for level in sorted(stages)
    )


def _why(
    wiring: Wiring,
    edges: Edges,
    places: list[StagePosition],
    segment_of: list[SegmentId],
    producer: StageId,
    reader: StageId,
    share: str,
) -> str:
    """Return the reason why rows from ``producer`` to ``reader`` are materialised, for people.

    ``share``: why they are in two segments, although nothing has to be complete in between.
    """
    stage = wiring.stages[reader]
    text = f"read by segment {segment_of[reader]} ({stage.name})"
    if reader in edges.is_stable:
        return f"{text}: it asks for stable input"
    if edges.first(producer) != edges.first(reader):
        return f"{text}: what follows the write of a table runs after all else"
    if places[producer].segment[0] == places[reader].segment[0]:
        return f"{text}: {share}"
    if stage.side_inputs:
        steps = step_list(
            wiring.graph.transforms[side.transform].step for side in stage.side_inputs
        )
        return f"{text}: the side inputs of {steps} must be complete first"
    return f"{text}: it also gets rows that are made only there"

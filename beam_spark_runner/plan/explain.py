"""Renders a plan as text, for users: what runs where, and why."""

import itertools
from collections.abc import Iterable, Iterator

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import DestinationId, PCollectionId, SegmentId
from beam_spark_runner.core.table_steps import TableRead, TableWrite
from beam_spark_runner.graph import facts
from beam_spark_runner.plan.model import (
    Delivery,
    Destination,
    Level,
    Plan,
    Segment,
    Stage,
    Stored,
)

_INDENT = "  "
_PATTERNS = {urns.SIDE_INPUT_ITERABLE: "iterable", urns.SIDE_INPUT_MULTIMAP: "multimap"}
_KEPT = {
    Stored.GROUPS: "windows that have not fired, for each key",
    Stored.VIEW: "the last pane of each window, and what has not fired",
    Stored.UNREADY: "elements that wait for side inputs",
    Stored.UNCOMMITTED: "its input until that is committed",
    Stored.UNSORTED: "elements that the watermark has not passed",
}
"""What a streaming stage keeps. Batch has state and restrictions, too: see ``Explainer.stage``."""


def explain(plan: Plan) -> str:
    """Describe what runs where, what is exchanged, and what is materialised and why.

    Example:
        2 Beam stages in 1 Spark job with 1 exchange

        Segment 0: one Spark job
          Before the first exchange
            Beam stage 0: Read + Count
              reads    one impulse
              runs     Read
                       Count
              writes   to Beam stage 1 (group by key for Count)
          Exchange 1: group by key for Count
            Beam stage 1: Count
              …

    Collections are named by the step that makes them, since their own names are internal to SDKs.
    """
    return "".join(f"{line}\n" for line in Explainer(plan).lines())


class Explainer:
    """Renders the parts of a plan as text."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.main = {
            destination.stage: destination
            for destination in plan.destinations.values()
            if destination.stage is not None
        }
        self._steps = facts.users_steps(plan.graph)
        self.collection_names = {
            collection: transform.step if len(transform.outputs) == 1 else f"{transform.step}.{tag}"
            for transform in plan.graph.transforms.values()
            for tag, collection in transform.outputs.items()
        }
        self.segment_of = {
            stage: segment.id
            for segment in plan.segments
            for level in segment.levels
            for stage in level.stages
        }
        self.readers: dict[DestinationId, list[str]] = {}
        self.writers: dict[DestinationId, list[SegmentId]] = {}
        for stage in plan.stages.values():
            for side in stage.side_inputs:
                name = plan.graph.transforms[side.transform].step
                self.readers.setdefault(side.destination, []).append(name)
        for segment in plan.segments:
            for destination in segment.writes:
                self.writers.setdefault(destination, []).append(segment.id)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the whole plan, see ``explain``."""
        yield self.summary()
        for segment in self.plan.segments:
            yield ""
            yield from self._segment(segment)

    def summary(self) -> str:
        """Return the numbers of stages, Spark jobs and exchanges."""
        levels = [level for segment in self.plan.segments for level in segment.levels]
        exchanges = sum(level.has_exchange for level in levels)
        return (
            f"{_count(len(self.plan.stages), 'Beam stage')} in "
            f"{_count(len(self.plan.segments), 'Spark job')} "
            f"with {_count(exchanges, 'exchange')}"
        )

    def levels(self, segment: Segment) -> Iterator[tuple[str, Level]]:
        """Yield each level of a segment, after a title with the exchange in front of it."""
        exchanges = 0
        for level in segment.levels:
            if not level.has_exchange:
                yield "Before the first exchange", level
                continue
            exchanges += 1
            kinds = dict.fromkeys(
                self._exchange(self.main[stage])
                for stage in level.stages
                if self.main[stage].delivery is not Delivery.POINTWISE
            )
            exchange = "; ".join(kinds) or "the level before it has the maximum number of stages"
            yield f"Exchange {exchanges}: {exchange}", level

    def materialised(self, segment: Segment) -> Iterator[str]:
        """Yield what is materialised at the end of the segment, and why."""
        for destination, why in segment.writes.items():
            rows = self.plan.destinations[destination]
            yield f"output of {self._collection(rows.arriving)}: {why}"

    def _segment(self, segment: Segment) -> Iterator[str]:
        yield self.title(segment)
        for title, level in self.levels(segment):
            yield f"{_INDENT}{title}"
            for id_ in level.stages:
                yield from self._indented(2, self.stage(segment, self.plan.stages[id_]))
        if segment.writes:
            yield f"{_INDENT}Materialised at the end"
            yield from self._indented(2, self.materialised(segment))

    def title(self, segment: Segment) -> str:
        """Return the title of a segment; of a table write, this is its whole description."""
        if segment.table_write is not None:
            step = self.plan.graph.transforms[segment.table_write]
            write = TableWrite.from_payload(step.payload)
            (writers,) = segment.reads.values()
            origin = f"the rows of {_segments(writers)}" if writers else "no rows"
            return f"Segment {segment.id}: one Spark write of {write} ({step.step}), from {origin}"
        suffix = " for each epoch" if self.plan.is_streaming else ""
        return f"Segment {segment.id}: one Spark job{suffix}"

    def stage(self, segment: Segment, stage: Stage) -> Iterator[str]:
        """Yield the title of a stage, then what it reads, stores, runs and writes."""
        is_one_of_several = stage.environment and len(self.plan.graph.environments) > 1
        environment = f", in {stage.environment}" if is_one_of_several else ""
        yield f"Beam stage {stage.id}: {stage.name}{environment}"
        yield f"{_INDENT}reads    {self._source(segment, stage)}"
        yield from dict.fromkeys(self._looked_up(stage))  # parts of one step: once
        for kind, text in _KEPT.items():
            if kind in stage.stores:
                yield f"{_INDENT}keeps    {text}"
        if stage.takes_partition:
            takers = self._takers(stage)
            yield f"{_INDENT}takes    all elements of a task as one partition, for {takers}"
        if stage.is_keyed:
            root = self.plan.graph.transforms[stage.transforms[0]]
            contents = ", ".join(facts.states_and_timers(root))
            if contents:
                yield f"{_INDENT}keeps    {contents}, for each key and window"
        if stage.table_write is not None:
            write = TableWrite.from_payload(self.plan.graph.transforms[stage.table_write].payload)
            yield f"{_INDENT}keeps    the rows of an epoch, until the driver writes {write}"
        elif not stage.transforms and Stored.VIEW not in stage.stores:
            yield f"{_INDENT}runs     nothing: it passes its input on"
        steps = (self.plan.graph.transforms[transform].step for transform in stage.transforms)
        for number, (step, _) in enumerate(itertools.groupby(steps)):  # parts of one: once
            label = " " * 4 if number else "runs"
            yield f"{_INDENT}{label}     {step}"
        if stage.is_splittable:
            later = "a later epoch" if self.plan.is_streaming else "later bundles, or to a round"
            yield f"{_INDENT}defers   what a restriction leaves: to {later}"
        for collection_id in stage.outputs:
            for id_ in self.plan.consumers.get(collection_id, ()):
                yield f"{_INDENT}writes   {self._target(segment, self.plan.destinations[id_])}"

    def _looked_up(self, stage: Stage) -> Iterator[str]:
        for side in stage.side_inputs:
            destination = self.plan.destinations[side.destination]
            pattern = _PATTERNS.get(destination.access_pattern, destination.access_pattern)
            collection = f"output of {self._collection(destination.arriving)}"
            writers = self.writers.get(side.destination, [])
            if destination.stage is not None:
                origin = f"as Beam stage {destination.stage} has it from earlier epochs"
            else:
                origin = f"from {_segments(writers)}" if writers else "always empty"
            reader = self.plan.graph.transforms[side.transform].step
            yield f"{_INDENT}looks up {collection} as {pattern}, for {reader} ({origin})"

    def _takers(self, stage: Stage) -> str:
        steps = (self.plan.graph.transforms[id_] for id_ in stage.transforms)
        return ", ".join(step.step for step in steps if step.takes_partition)

    def _source(self, segment: Segment, stage: Stage) -> str:
        destination = self.main[stage.id]
        name = self._collection(stage.input)
        if destination.id in segment.impulses:
            return "one impulse"
        if destination.id in segment.test_streams:
            return f"what {name} plays"
        if destination.id in segment.tables:
            step = self.plan.graph.transforms[segment.tables[destination.id]]
            return f"{TableRead.from_payload(step.payload).in_words()}, directly from the source"
        if destination.id in segment.results:
            return f"what {name} has written"
        parts = (
            [self._exchange(destination)] if destination.delivery is not Delivery.POINTWISE else []
        )
        earlier = segment.reads.get(destination.id, ())
        if earlier:
            parts.append(f"materialised by {_segments(earlier)}")
        text = f"output of {name}"
        return f"{text} ({', '.join(parts)})" if parts else text

    def _target(self, segment: Segment, destination: Destination) -> str:
        if destination.delivery is Delivery.TABLE:
            return f"to the table of {self._step(destination)}"
        if destination.stage is None:
            readers = ", ".join(dict.fromkeys(self.readers.get(destination.id, ())))
            return f"the side input of {readers}"
        text = f"to Beam stage {destination.stage}"
        reader = self.segment_of[destination.stage]
        parts = (
            [self._exchange(destination)] if destination.delivery is not Delivery.POINTWISE else []
        )
        if reader != segment.id:
            parts.append(f"in segment {reader}")
        return f"{text} ({', '.join(parts)})" if parts else text

    def _collection(self, id_: PCollectionId) -> str:
        return self.collection_names.get(id_) or self.plan.graph.pcollections[id_].name

    def _exchange(self, destination: Destination) -> str:
        text = destination.delivery.value
        if destination.is_time_sorted:
            text += " and in the order of event time"
        return f"{text} for {self._step(destination)}"

    def _step(self, destination: Destination) -> str:
        return self._steps.get(destination.name, destination.name)

    def _indented(self, depth: int, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            yield f"{_INDENT * depth}{line}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _segments(ids: Iterable[SegmentId]) -> str:
    numbers = [str(id_) for id_ in ids]
    return f"segment{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"

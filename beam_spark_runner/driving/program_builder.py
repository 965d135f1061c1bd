"""Builds the programs of tasks from a segment of the plan."""

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa

from beam_spark_runner.core import routing, urns
from beam_spark_runner.core.ids import DestinationId, StageId
from beam_spark_runner.driving.stage_programs import StagePrograms
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import (
    BatchPart,
    Edge,
    EpochPart,
    LevelProgram,
    OutputPlace,
    SideInputRows,
)
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.graph.resources import Resources, merged
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Delivery, Level, Plan, Segment
from beam_spark_runner.portable.window_merging import is_of_an_sdk

RETURNED_BYTES = 4 << 20
"""About the most that the reports of one Spark job bring along."""
MIN_RETURNED_BYTES_OF_TASK = 4 << 10
_CODES = routing.REPORT_CODE - routing.FIRST_CODE
"""How many destinations of a level have a separate code. Rows of the first level, which no
exchange sorts, may be for more; those with one code are distinguished by the destination."""


class ProgramBuilder:
    """Builds the level programs of one plan.

    Args:
        plan: the plan.
        job_id: the id of its job.
        limits: of all tasks of the job.
        epoch: what all levels have if the plan streams.

    Attributes:
        edges: those of all segments.
    """

    def __init__(
        self, plan: Plan, job_id: str, limits: Limits, epoch: EpochPart | None = None
    ) -> None:
        self._plan = plan
        self._job_id = job_id
        self._limits = limits
        self._epoch = epoch
        self._input_of = inputs(plan)
        codes: dict[DestinationId, int] = {}
        for segment in plan.segments:
            for level in segment.levels:
                for index, stage in enumerate(level.stages):
                    codes[self._input_of[stage]] = routing.FIRST_CODE + index % _CODES
        self.edges: Mapping[DestinationId, Edge] = {
            id_: self._edge(id_, codes.get(id_, routing.FIRST_CODE)) for id_ in plan.destinations
        }
        self._stages = StagePrograms(plan, self.edges)

    def _edge(self, id_: DestinationId, code: int) -> Edge:
        destination = self._plan.destinations[id_]
        graph = self._plan.graph
        windowing = graph.windowings[graph.pcollections[destination.arriving].windowing]
        return Edge(
            dest=id_,
            code=code,
            delivery=destination.delivery,
            name=destination.name,
            is_global=windowing.window_fn_urn == urns.WINDOW_FN_GLOBAL,
            timestamp_combiner=destination.timestamp_combiner,
            access_pattern=destination.access_pattern,
            coded_windowing=windowing.coded
            if (
                destination.delivery is Delivery.GROUP_BY_KEY
                and (self._plan.is_streaming or not windowing.groups_by_window)
            )
            or (destination.delivery is Delivery.SIDE_INPUT and self._plan.is_streaming)
            else b"",
            is_windowed_by_sdk=is_of_an_sdk(graph, windowing),
            is_keyed=destination.stage is not None
            and self._plan.stages[destination.stage].is_keyed,
            is_time_sorted=destination.is_time_sorted,
            is_partition=destination.is_partition,
            key_groups=0 if self._epoch is None else self._epoch.shards.key_groups,
            is_in_parts=(
                destination.delivery is Delivery.SIDE_INPUT
                and self._plan.is_streaming
                and windowing.gathers_in_parts
            ),
        )

    def input_of(self, stage: StageId) -> DestinationId:
        """Return the destination that a stage reads."""
        return self._input_of[stage]

    def readers(self, segment: Segment, level: int) -> tuple[Edge, ...]:
        """Return the edges that the stages of a level read."""
        return tuple(self.edges[self._input_of[stage]] for stage in segment.levels[level].stages)

    def keeps_partitions(self, segment: Segment) -> bool:
        """Whether whole partitions pass the first exchange, from the tasks upstream of it.

        It needs as many partitions as there are such tasks, so that no two become one.
        """
        first, *others = segment.levels
        here = frozenset(first.stages)
        return bool(others) and any(
            edge.is_partition
            for id_ in first.stages
            for collection in self._plan.stages[id_].outputs
            for edge in map(self.edges.__getitem__, self._plan.consumers.get(collection, ()))
            if self._plan.destinations[edge.dest].stage not in here
        )

    def may_begin_in_one_task(self, segment: Segment) -> bool:
        """Whether one task may run the levels of a segment, as far as it comes."""
        stages = [self._plan.stages[id_] for level in segment.levels for id_ in level.stages]
        return not any(stage.takes_partition for stage in stages) and not any(
            self.edges[dest].is_partition for dest in segment.writes
        )

    def has_rounds(self, segment: Segment) -> bool:
        """Whether a splittable DoFn is among the segment's stages."""
        return any(map(self._hosts_splittable, segment.levels))

    def finalizes(self, segment: Segment) -> bool:
        """Whether a splittable DoFn among the stages may register bundle finalization.

        Its callbacks run only between two rounds.
        """
        return any(
            self._plan.graph.transforms[transform].finalizes_bundles
            for level in segment.levels
            for id_ in level.stages
            if self._plan.stages[id_].is_splittable
            for transform in self._plan.stages[id_].transforms
        )

    def may_pass_on(
        self, segment: Segment, index: int, job: range, round_budget_s: float | None
    ) -> bool:
        """Whether the tasks of a level may have to pass their input on to a later Spark job."""
        return round_budget_s is not None and any(
            self._hosts_splittable(segment.levels[before]) for before in job if before < index
        )

    def _hosts_splittable(self, level: Level) -> bool:
        return any(self._plan.stages[id_].is_splittable for id_ in level.stages)

    def level(
        self,
        segment: Segment,
        index: int,
        partitions: int,
        side_inputs: Mapping[DestinationId, SideInputRows],
        *,
        job: range,
        round_budget_s: float | None,
        longest_round_s: float | None = None,
        run: int = 0,
        fed: Sequence[pa.RecordBatch] = (),
        in_one_task: bool = False,
        stores_rows: bool = False,
        is_round: bool = False,
        place: OutputPlace | None = None,
    ) -> LevelProgram:
        """Return the program of one level.

        Args:
            segment: the segment of the level.
            index: the index of the level within the segment.
            partitions: the number of partitions of every exchange.
            side_inputs: the gathered rows of side inputs.
            job: the indices of the levels in the Spark job.
            round_budget_s: the time for splittable DoFns; None: they process all restrictions.
            longest_round_s: see ``BatchPart.longest_round_us``.
            run: number of the Spark job among all of the pipeline's.
            fed: see ``BatchPart``; none: the tasks read their input.
            in_one_task: see ``SegmentJob``.
            stores_rows: see ``EpochPart``.
            is_round: see ``BatchPart``.
            place: see ``BatchPart``.
        """
        here = frozenset(segment.levels[index].stages)
        has_next = index + 1 in job or stores_rows
        programs = tuple(
            self._stages.program(stage, here, side_inputs) for stage in segment.levels[index].stages
        )
        return LevelProgram(
            job_id=self._job_id,
            title=" | ".join(program.name for program in programs),
            run=run,
            level=segment.first_level + index,
            partitions=partitions,
            has_next=has_next,
            has_exchange=segment.levels[index].has_exchange,
            stages=programs,
            limits=self._limits,
            batch=None
            if self._epoch is not None
            else BatchPart(
                round_budget_us=_us_or_none(round_budget_s),
                longest_round_us=_us_or_none(longest_round_s),
                may_pass_on=self.may_pass_on(segment, index, job, round_budget_s),
                leaves_much=in_one_task and partitions > 1,
                is_round=is_round,
                driver_rows=schema.coded_batches(fed) if fed else b"",
                returned_dests=frozenset() if has_next or in_one_task else self._returned(segment),
                returned_bytes=max(RETURNED_BYTES // partitions, MIN_RETURNED_BYTES_OF_TASK),
                output_place=place,
            ),
            epoch=self._epoch and dataclasses.replace(self._epoch, stores_rows=stores_rows),
            passed_on=self._passed_on(segment, index, is_round=is_round),
            resources=self._resources(segment.levels[index]),
        )

    def _resources(self, level: Level) -> Resources:
        return merged(
            self._plan.graph.transforms[id_].resources
            for stage in level.stages
            for id_ in self._plan.stages[stage].transforms
        )

    def of_epoch(
        self, partitions: int, segment: Segment, levels: range, stores_rows: bool
    ) -> Sequence[LevelProgram]:
        """Return the programs of levels that run in epochs.

        They have no number of a run: workers get the same closures in all epochs.

        Args:
            partitions: the number of partitions of every exchange.
            segment: the segment of the levels.
            levels: their indices within the segment.
            stores_rows: see ``EpochPart``, of the last one.
        """
        return [
            self.level(
                segment,
                index,
                partitions,
                {},
                job=levels,
                round_budget_s=None,
                stores_rows=stores_rows and index == levels[-1],
            )
            for index in levels
        ]

    def _returned(self, segment: Segment) -> frozenset[int]:
        """See ``BatchPart.returned_dests``."""
        return frozenset(
            int(dest) for dest in segment.writes if self.edges[dest].delivery is Delivery.SIDE_INPUT
        )

    def _passed_on(self, segment: Segment, index: int, *, is_round: bool) -> frozenset[int]:
        """See ``LevelProgram.passed_on``."""
        later = range(index + 1, len(segment.levels))
        read = [int(edge.dest) for each in later for edge in self.readers(segment, each)]
        # Other segments have materialised the input of the first level.
        is_first = index == 0 and not segment.levels[0].has_exchange and not is_round
        return frozenset(read if is_first else (*read, *map(int, segment.writes)))


def _us_or_none(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)

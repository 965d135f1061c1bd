"""Builds the programs of stages, and those of the helpers that they have."""

import itertools
from collections.abc import Iterator, Mapping

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId
from beam_spark_runner.engine.program import (
    Edge,
    HelperProgram,
    SideInputRows,
    StageInBatch,
    StageInEpochs,
    StageProgram,
    WindowMapping,
)
from beam_spark_runner.graph import facts
from beam_spark_runner.plan.accumulator_merging import merging_part
from beam_spark_runner.plan.dropping import dropping_step, known_to_the_user
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Delivery, Plan, SideInput, Stage, Stored
from beam_spark_runner.plan.truncating import truncating_part
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.window_mapping import (
    MappedBy,
    describe_window_mapping,
    mapped_by,
    pickled_mapping,
)
from beam_spark_runner.portable.window_merging import describe_window_merging
from beam_spark_runner.portable.windowing import allowed_lateness_us

_ENUMERABLE = frozenset({urns.WINDOW_FN_GLOBAL, urns.WINDOW_FN_FIXED, urns.WINDOW_FN_SLIDING})
"""WindowFns of which the runner knows the windows at any time, whatever the elements are."""
_MERGER, _WINDOW_MERGER, _TRUNCATOR, _WINDOW_MAPPERS = range(1, 5)
"""Numbers of the helpers of a stage; there may be several of the last kind."""


class StagePrograms:
    """Builds the programs of the stages of one plan.

    Args:
        plan: the plan.
        edges: the edge of each of its destinations.
    """

    def __init__(self, plan: Plan, edges: Mapping[DestinationId, Edge]) -> None:
        self._plan = plan
        self._edges = edges
        self._input_of = inputs(plan)

    def program(
        self,
        id_: StageId,
        here: frozenset[StageId],
        side_inputs: Mapping[DestinationId, SideInputRows],
    ) -> StageProgram:
        """Return the program of a stage.

        Args:
            id_: the stage.
            here: the stages of its level.
            side_inputs: the gathered rows of side inputs, if the pipeline is bounded.
        """
        stage = self._plan.stages[id_]
        outputs: dict[PCollectionId, tuple[Edge, ...]] = {}
        local: dict[PCollectionId, tuple[StageId, ...]] = {}
        for collection in stage.outputs:
            edges, stages = [], []
            for dest in self._plan.consumers.get(collection, ()):
                reader = self._plan.destinations[dest]
                if reader.delivery is Delivery.POINTWISE and reader.stage in here:
                    stages.append(reader.stage)
                else:
                    edges.append(self._edges[dest])
            outputs[collection], local[collection] = tuple(edges), tuple(stages)
        edge = self._edges[self._input_of[id_]]
        return StageProgram(
            stage=id_,
            name=stage.name,
            description=describe(self._plan, id_),
            input=edge,
            collection=self._plan.graph.pcollections[stage.input].name,
            outputs=outputs,
            local=local,
            counted_elsewhere=None if self._counts_input(stage) else stage.input,
            window_merger=self._window_merger(stage, edge),
            batch=None if self._plan.is_streaming else _in_batch(stage, side_inputs),
            epoch=self._in_epochs(stage) if self._plan.is_streaming else None,
        )

    def _counts_input(self, stage: Stage) -> bool:
        """Whether a stage is the one that counts the elements of its input: one does."""
        stages = self._plan.stages.values()
        # A stage without transforms emits what it reads.
        if any(stage.input in other.outputs for other in stages if other.transforms):
            return False
        return stage.id == min(other.id for other in stages if other.input == stage.input)

    def _window_merger(self, stage: Stage, edge: Edge) -> HelperProgram | None:
        graph = self._plan.graph
        arriving = self._plan.destinations[edge.dest].arriving
        windowing = graph.windowings[graph.pcollections[arriving].windowing]
        if not (edge.is_windowed_by_sdk and edge.coded_windowing and windowing.merges):
            return None
        return self._helper(
            stage, _WINDOW_MERGER, describe_window_merging(graph, windowing, edge.name)
        )

    def _in_epochs(self, stage: Stage) -> StageInEpochs:
        return StageInEpochs(
            stores=stage.stores,
            views={(side.transform, side.local_name): edge for side, edge in self._views(stage)},
            mappings=self._mappings(stage),
            merger=self._merger(stage),
            truncator=self._truncator(stage),
            lateness_us=max(map(self._lateness_us, self._readers_of_view(stage) or (stage,))),
            late_counter_step=dropping_step(self._plan, stage),
            keyed_transform=stage.transforms[0] if Stored.KEYS in stage.stores else "",
            is_for_table=stage.table_write is not None,
        )

    def _merger(self, stage: Stage) -> HelperProgram | None:
        if Stored.GROUPS not in stage.stores:
            return None
        part = merging_part(self._plan.graph, stage)
        if part is None:
            return None
        return self._helper(stage, _MERGER, describe(self._plan, stage.id, part=part))

    def _truncator(self, stage: Stage) -> HelperProgram | None:
        if Stored.RESTRICTIONS not in stage.stores:
            return None
        plan, part = truncating_part(self._plan, stage)
        (step,) = part.transforms
        views: dict[tuple[str, str], Edge] = {
            (step, side.local_name): edge for side, edge in self._views(stage)
        }
        return self._helper(stage, _TRUNCATOR, describe(plan, stage.id, part=part), views)

    def _views(self, stage: Stage) -> Iterator[tuple[SideInput, Edge]]:
        """Yield the side inputs of a stage, with the edges into the stages that gather them."""
        for side in stage.side_inputs:
            yield side, self._edges[side.destination]

    def _mappings(self, stage: Stage) -> Mapping[tuple[str, str], WindowMapping]:
        graph = self._plan.graph
        found: dict[tuple[str, str], WindowMapping] = {}
        number = itertools.count(_WINDOW_MAPPERS)
        for side, view in self._views(stage):
            reader = graph.transforms[known_to_the_user(graph, side.transform)]
            main = facts.windowing(graph, facts.main_input(reader))
            by = mapped_by(graph, reader, side.local_name)
            asks = None
            if by is MappedBy.SDK:
                description = describe_window_mapping(graph, reader, side.local_name)
                asks = self._helper(stage, next(number), description)
            found[side.transform, side.local_name] = WindowMapping(
                step=reader.name,
                coded_windowing=view.coded_windowing,
                coded_main=main.coded if main.window_fn_urn in _ENUMERABLE else b"",
                pickled=pickled_mapping(reader, side.local_name)
                if by is MappedBy.FUNCTION
                else b"",
                helper=asks,
            )
        return found

    def _helper(
        self,
        stage: Stage,
        number: int,
        description: StageDescription,
        views: Mapping[tuple[str, str], Edge] | None = None,
    ) -> HelperProgram:
        """Return the program of a helper.

        Args:
            stage: the stage that is helped.
            number: the number of the helper, from 1: its id follows those of all stages.
            description: the description of the helper.
            views: see ``HelperProgram``.
        """
        return HelperProgram(
            stage=StageId(number * len(self._plan.stages) + stage.id),
            name=stage.name,
            description=description,
            views=views or {},
        )

    def _readers_of_view(self, stage: Stage) -> list[Stage]:
        """Return the stages that look up the side input that a stage gathers, if it does."""
        dest = self._input_of[stage.id]
        if self._plan.destinations[dest].delivery is not Delivery.SIDE_INPUT:
            return []
        return [
            each
            for each in self._plan.stages.values()
            if any(side.destination == dest for side in each.side_inputs)
        ]

    def _lateness_us(self, stage: Stage) -> int:
        graph = self._plan.graph
        return allowed_lateness_us(
            graph.windowings[graph.pcollections[stage.input].windowing].coded
        )


def _in_batch(stage: Stage, side_inputs: Mapping[DestinationId, SideInputRows]) -> StageInBatch:
    return StageInBatch(
        side_inputs={
            (side.transform, side.local_name): side_inputs[side.destination]
            for side in stage.side_inputs
            if side.destination in side_inputs
        },
        takes_partition=stage.takes_partition,
    )

"""Finds which stages of a plan send elements to which."""

from collections.abc import Mapping
from dataclasses import dataclass

from beam_spark_runner.core.ids import DestinationId, StageId
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamStages:
    """The stages from which a stage gets elements or side inputs.

    Attributes:
        in_task: Stages whose elements stay in the task.
        exchanged: Stages whose elements, from any task, may reach any task of this stage; those
            that gather its side inputs are among them.
    """

    in_task: frozenset[StageId] = frozenset()
    exchanged: frozenset[StageId] = frozenset()


def inputs(plan: Plan) -> Mapping[StageId, DestinationId]:
    """Return the destination that each stage reads."""
    return {
        destination.stage: id_
        for id_, destination in plan.destinations.items()
        if destination.stage is not None
    }


def feeders(plan: Plan) -> Mapping[StageId, UpstreamStages]:
    """Return the feeders of each stage of the plan. A stage that the driver feeds has none."""
    level_of: dict[StageId, frozenset[StageId]] = {}
    for level in levels(plan):
        level_of.update(dict.fromkeys(level.stages, frozenset(level.stages)))
    in_task: dict[StageId, set[StageId]] = {stage: set() for stage in plan.stages}
    exchanged: dict[StageId, set[StageId]] = {stage: set() for stage in plan.stages}
    for id_, stage in plan.stages.items():
        for collection in stage.outputs:
            for dest in plan.consumers.get(collection, ()):
                destination = plan.destinations[dest]
                reader = destination.stage
                if reader is None:
                    continue
                is_local = destination.delivery is Delivery.POINTWISE and reader in level_of[id_]
                (in_task if is_local else exchanged)[reader].add(id_)
        for side_input in stage.side_inputs:
            gathers = plan.destinations[side_input.destination].stage
            if gathers is not None:
                exchanged[id_].add(gathers)
    return {
        stage: UpstreamStages(
            in_task=frozenset(in_task[stage]), exchanged=frozenset(exchanged[stage])
        )
        for stage in plan.stages
    }

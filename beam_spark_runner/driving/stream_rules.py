"""What the loop over epochs has to know of a plan."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from beam_spark_runner.core.ids import DestinationId, PCollectionId
from beam_spark_runner.plan.compatibility import declared_by_stages, stage_places, step_names
from beam_spark_runner.plan.model import Plan, Stored
from beam_spark_runner.plan.storing import lags, may_be_in_state_store
from beam_spark_runner.portable.environment_facts import has_maps_in_bags
from beam_spark_runner.portable.payloads import forms_of
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.scheduling.finish import Finishing


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """The part of a streaming plan that decides on its epochs.

    Attributes:
        partitions: the number of partitions of each exchange.
        version: the version of the pipeline, see ``recovery.migration``.
        finishing: the rules by which its stages finish.
        impulses: the destinations that get an element in the first epoch.
        lags: destinations of steps that require stable input: they reach a watermark in the epoch
            after the one that has committed it.
        splittable: the numbers of the stages that store restrictions.
        keyed: the numbers of the stages whose keys may be in a state store.
        tables: destination -> the name of the step that writes its rows to a table.
        played: destination of the first level -> the output of a TestStream that it reads.
    """

    partitions: int
    version: PipelineVersion
    finishing: Finishing
    impulses: tuple[int, ...]
    lags: Collection[int]
    splittable: Collection[int]
    keyed: Collection[int]
    tables: Mapping[int, str]
    played: Mapping[DestinationId, PCollectionId]


def rules_of(plan: Plan, partitions: int, renamed: Mapping[str, str]) -> StreamRules:
    """Return the rules of a streaming plan.

    Args:
        plan: the plan, which has a segment.
        partitions: the number of partitions of each exchange.
        renamed: the earlier names of steps, by their names now.
    """
    first = plan.segments[0]
    places = stage_places(plan, forms_of, has_maps_in_bags)
    tables = {
        int(id_): plan.graph.transforms[step].name
        for id_, destination in plan.destinations.items()
        if destination.stage is not None
        and (step := plan.stages[destination.stage].table_write) is not None
    }
    return StreamRules(
        partitions=partitions,
        version=PipelineVersion(
            plan=places,
            steps=step_names(plan),
            renamed=renamed,
            declared=declared_by_stages(plan, places),
            tables=frozenset(tables.values()),
        ),
        tables=tables,
        finishing=Finishing(plan, partitions),
        impulses=tuple(map(int, first.impulses)),
        lags=[
            int(id_)
            for id_, destination in plan.destinations.items()
            if destination.stage is not None and lags(plan.stages[destination.stage].stores)
        ],
        splittable={
            int(id_) for id_, stage in plan.stages.items() if Stored.RESTRICTIONS in stage.stores
        },
        keyed={
            int(id_) for id_, stage in plan.stages.items() if may_be_in_state_store(stage.stores)
        },
        played={dest: plan.destinations[dest].arriving for dest in first.test_streams},
    )

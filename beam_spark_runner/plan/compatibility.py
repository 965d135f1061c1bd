"""The parts of a plan that must not change between two runs that use one checkpoint."""

import hashlib
from collections.abc import Mapping

from beam_spark_runner.graph import facts
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Plan, Stage


def must_not_change(plan: Plan) -> Mapping[str, str]:
    """Return a digest for each step, and where it stores what it stores.

    State is found by the step's stage and level, read by its coders, and means something under
    its windowing only. What user code does may change.

    Example:
        {"step Count": "beam:transform:pardo:v1, stage 1, level 1, state n, timer t, 5d41402a"}
    """
    level_of = {
        stage: number for number, level in enumerate(levels(plan)) for stage in level.stages
    }
    found: dict[str, str] = {}
    for id_, stage in plan.stages.items():
        for transform_id in stage.transforms:
            transform = plan.graph.transforms[transform_id]
            parts = (
                transform.urn,
                f"stage {id_}",
                f"level {level_of[id_]}",
                *facts.kept_by_key(transform),
                *(["stable input"] if transform.requires_stable_input else []),
                *(["time-sorted input"] if transform.requires_time_sorted_input else []),
                _digest_of_input(plan, stage),
            )
            name = facts.fresh(f"step {transform.name}", found)  # copies of a Flatten
            found[name] = ", ".join(parts)
    for destination in plan.destinations.values():
        if destination.delivery is Delivery.SIDE_INPUT and destination.stage is not None:
            gathering = plan.stages[destination.stage]
            name = facts.fresh(f"side input of {destination.name}", found)  # it may have several
            found[name] = ", ".join(
                (
                    f"stage {gathering.id}",
                    f"level {level_of[gathering.id]}",
                    *(["in parts"] if _is_in_parts(plan, gathering) else []),
                    _digest_of_input(plan, gathering),
                )
            )
    return found


def _is_in_parts(plan: Plan, gathering: Stage) -> bool:
    return facts.windowing(plan.graph, gathering.input).gathers_in_parts


def _digest_of_input(plan: Plan, stage: Stage) -> str:
    """Digest coder and windowing of what the stage reads.

    Pickled coders differ from run to run: of those only the kind counts.
    """
    pending, kinds = [plan.graph.pcollections[stage.input].coder], []
    while pending:
        coder = plan.graph.coders[pending.pop()]
        kinds.append(coder.urn)
        pending.extend(reversed(coder.components))
    windowing = facts.windowing(plan.graph, stage.input)
    described = (*kinds, windowing.window_fn_urn, windowing.window_fn_parameters, windowing.trigger)
    return hashlib.blake2b("\0".join(described).encode(), digest_size=4).hexdigest()

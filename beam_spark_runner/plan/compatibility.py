"""What identifies the stages of a plan in later runs, and what they store.

Stages, levels, destinations and transforms have numbers and ids that may be others once a pipeline
has changed. Stages are known again by the name of the step that asks for their input.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from beam_spark_runner.graph import facts
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Plan, Stage


class StagePlace(NamedTuple):
    """Where a stage stores what.

    Attributes:
        stage: its number.
        level: of it, counted over all segments.
        is_exchanged: the level has as many partitions as an exchange; else it has one.
        dest: number of the destination that it reads.
        is_fed: it reads an impulse.
        transform: id of the one that has state and timers; empty: there is none.
        kept: what it stores, for people, with a digest of the coder and windowing of its input;
            empty: nothing.
    """

    stage: int
    level: int
    is_exchanged: bool
    dest: int
    is_fed: bool
    transform: str
    kept: str


def stage_places(plan: Plan) -> Mapping[str, StagePlace]:
    """Return where each stage stores what, by a name that it has in later runs, too.

    What user code does may change.

    Example:
        {"step Count": StagePlace(1, 1, True, 3, False, "ref_7", "state n, timer due, 5d41402a")}
    """
    level_of = {stage: number for number, each in enumerate(levels(plan)) for stage in each.stages}
    impulses = {dest for segment in plan.segments for dest in segment.impulses}
    makers = facts.producers(plan.graph)
    found: dict[str, StagePlace] = {}
    for id_, dest in inputs(plan).items():
        stage, destination, level = plan.stages[id_], plan.destinations[dest], level_of[id_]
        keyed = stage.transforms[0] if stage.is_keyed else ""
        name = f"step {destination.name}"
        if destination.delivery is Delivery.SIDE_INPUT:
            name = f"side input of {destination.name}"
        elif dest in impulses:  # what reads it may have no name of its own
            name = f"step {plan.graph.transforms[makers[destination.arriving]].name}"
        # Copies of a Flatten have one name, and so do several side inputs of a step.
        found[facts.fresh(name, found)] = StagePlace(
            stage=int(id_),
            level=level,
            is_exchanged=levels(plan)[level].has_exchange,
            dest=int(dest),
            is_fed=dest in impulses,
            transform=str(keyed),
            kept=_kept(plan, stage, destination.delivery),
        )
    return found


def step_names(plan: Plan) -> Mapping[str, str]:
    """Return the names of the plan's transforms, by their ids: metrics have these."""
    return {str(id_): transform.name for id_, transform in plan.graph.transforms.items()}


def _kept(plan: Plan, stage: Stage, delivery: Delivery) -> str:
    graph = plan.graph
    parts: list[str] = []
    if delivery is Delivery.GROUP_BY_KEY:
        parts.append("groups")
    if delivery is Delivery.SIDE_INPUT:
        in_parts = facts.windowing(graph, stage.input).gathers_in_parts
        parts.append("a side input in parts" if in_parts else "a side input")
    if stage.is_splittable:
        parts.append("restrictions")
    elif stage.side_inputs and not stage.is_keyed:
        parts.append("elements that wait for side inputs")
    if stage.is_stable:
        parts.append("stable input")
    if stage.is_keyed:
        keyed = graph.transforms[stage.transforms[0]]
        parts += facts.kept_by_key(keyed)
        if keyed.requires_time_sorted_input:
            parts.append("time-sorted input")
    return ", ".join([*parts, _digest_of_input(plan, stage)]) if parts else ""


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

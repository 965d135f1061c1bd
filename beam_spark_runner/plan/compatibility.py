"""What identifies the stages of a plan in later runs, and what they store.

Stages, levels, destinations and transforms have numbers and ids that may be others once a pipeline
has changed. Stages are known again by the name of the step that asks for their input.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_SDK_HARNESSES
from beam_spark_runner.core.ids import CoderId, PCollectionId, TransformId
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph, Transform, Windowing
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Destination, Plan, Stage

Forms: TypeAlias = Callable[[Transform], Iterable[tuple[str, Sequence[CoderId]]]]
"""Describes the states and timers of a transform: what each is, and its coders."""


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
        root: name of its first step; empty: it has none. Several stages may read one GroupByKey or
            Reshuffle, whose name they have then.
    """

    stage: int
    level: int
    is_exchanged: bool
    dest: int
    is_fed: bool
    transform: str
    kept: str
    root: str = ""


def stage_places(plan: Plan, forms: Forms) -> Mapping[str, StagePlace]:
    """Return where each stage stores what, by a name that it has in later runs, too.

    What user code does may change.

    Args:
        plan: of the pipeline.
        forms: of states and timers.

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
        root = plan.graph.transforms[stage.transforms[0]].name if stage.transforms else ""
        name = f"step {destination.name}"
        if destination.delivery is Delivery.SIDE_INPUT:
            name = _side_input(plan.graph, destination, makers)
        elif dest in impulses:  # what reads it may have no name of its own
            name = f"step {plan.graph.transforms[makers[destination.arriving]].name}"
        # Copies of a Flatten have one name, and so have all readers of a GroupByKey.
        found[facts.fresh(name, found)] = StagePlace(
            stage=int(id_),
            level=level,
            is_exchanged=levels(plan)[level].has_exchange,
            dest=int(dest),
            is_fed=dest in impulses,
            transform=str(keyed),
            kept=_kept(plan, stage, destination.delivery, forms),
            root=root,
        )
    return found


def step_names(plan: Plan) -> Mapping[str, str]:
    """Return the names of the plan's transforms, by their ids: metrics have these."""
    return {str(id_): transform.name for id_, transform in plan.graph.transforms.items()}


SIDE_INPUT = "side input of "
"""Begins the names of stages that gather a side input: goes on with the step that gives it."""


def _side_input(
    graph: Graph, destination: Destination, makers: Mapping[PCollectionId, TransformId]
) -> str:
    """Name a side input by what gives it: many steps may look it up."""
    maker = graph.transforms[makers[destination.arriving]]
    name = f"{SIDE_INPUT}{maker.name}"
    if len(maker.outputs) > 1:
        tags = {collection: tag for tag, collection in maker.outputs.items()}
        name += f" [{tags[destination.arriving]}]"
    return f"{name} [{destination.access_pattern.split(':')[2]}]"  # beam:side_input:iterable:v1


def _kept(plan: Plan, stage: Stage, delivery: Delivery, forms: Forms) -> str:
    graph = plan.graph
    described: tuple[str, ...] = ()
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
        for form, coders in forms(keyed):
            described += (form, *(urn for coder in coders for urn in _urns(graph, coder)))
        if keyed.requires_time_sorted_input:
            parts.append("time-sorted input")
    return ", ".join([*parts, _digest(plan, stage, described)]) if parts else ""


def _urns(graph: Graph, coder_id: CoderId) -> Iterator[str]:
    """Yield the kinds of a coder and its components: pickled ones differ from run to run.

    Of rows, also their fields: others would be read in their place without an error.
    """
    pending = [coder_id]
    while pending:
        coder = graph.coders[pending.pop()]
        yield coder.urn
        if coder.fields:
            yield coder.fields
        pending.extend(reversed(coder.components))


def _digest(plan: Plan, stage: Stage, states: Iterable[str]) -> str:
    """Digest coder and windowing of what the stage reads, and its states."""
    windowing = facts.windowing(plan.graph, stage.input)
    described = (
        *_urns(plan.graph, plan.graph.pcollections[stage.input].coder),
        windowing.window_fn_urn,
        # Pickled WindowFns differ from run to run, as pickled coders do.
        windowing.window_fn_parameters if windowing.environment is None else "",
        windowing.trigger,
        *(("windows with their end",) if _have_their_end(plan.graph, windowing) else ()),
        *states,
    )
    return hashlib.blake2b("\0".join(described).encode(), digest_size=4).hexdigest()


def _have_their_end(graph: Graph, windowing: Windowing) -> bool:
    """Whether windows are stored as SDK harnesses give them: see ``portable.wire``."""
    is_remote = any(each.urn in IN_SDK_HARNESSES for each in graph.environments.values())
    return is_remote and graph.coders[windowing.window_coder].urn not in urns.WINDOW_CODERS

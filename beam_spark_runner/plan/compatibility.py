"""Describes the stages of a plan and what they store, so that later runs recognise them.

The numbers and ids of stages, levels, destinations and transforms may differ once a pipeline has
changed. A stage is recognised by the name of the step that requires its input.
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
from beam_spark_runner.plan.model import Delivery, Destination, Plan, Stage, Stored

Forms: TypeAlias = Callable[[Transform], Iterable[tuple[str, Sequence[CoderId]]]]
"""Describes the states and timers of a transform: the kind of each, and its coders."""
HasMapsInBags: TypeAlias = Callable[[Graph, Transform], bool]
"""Says whether the maps of a transform are written as bags, not entry by entry."""
MAPS_IN_BAGS = ", maps in bags, "
"""Is in the description of what a stage stores if its maps are written as bags."""


class StoredStage(NamedTuple):
    """What a stage stores, and where in the shards.

    Attributes:
        stage: The number of the stage.
        level: The number of its level, counted over all segments.
        is_exchanged: Whether the level has as many partitions as an exchange; else it has one.
        dest: The number of the destination that the stage reads.
        is_fed: Whether it reads an impulse.
        transform: The id of its transform with state and timers; empty: there is none.
        kept: What it stores, for people, with a digest of the coder and windowing of its input;
            empty: nothing.
        root: The name of its first step; empty: it has none. It distinguishes stages that read
            the same GroupByKey or Reshuffle, and so have the same name.
    """

    stage: int
    level: int
    is_exchanged: bool
    dest: int
    is_fed: bool
    transform: str
    kept: str
    root: str = ""


def stage_places(
    plan: Plan, forms: Forms, has_maps_in_bags: HasMapsInBags
) -> Mapping[str, StoredStage]:
    """Return what each stage stores and where, by a name that is the same in later runs.

    User code may change between runs.

    Args:
        plan: The plan of the pipeline.
        forms: Describes states and timers.
        has_maps_in_bags: See ``HasMapsInBags``.

    Example:
        {"step Count": StoredStage(1, 1, True, 3, False, "ref_7", "state n, timer due, 5d41402a")}
    """
    level_of = {
        stage: number for number, level in enumerate(levels(plan)) for stage in level.stages
    }
    impulses = {dest for segment in plan.segments for dest in segment.impulses}
    producers = facts.producers(plan.graph)
    places: dict[str, StoredStage] = {}
    for id_, dest in inputs(plan).items():
        stage, destination, level = plan.stages[id_], plan.destinations[dest], level_of[id_]
        keyed = stage.transforms[0] if Stored.KEYS in stage.stores else ""
        root = plan.graph.transforms[stage.transforms[0]].name if stage.transforms else ""
        name = f"step {destination.name}"
        if destination.delivery is Delivery.SIDE_INPUT:
            name = _side_input(plan.graph, destination, producers)
        elif dest in impulses:  # its reader may have no name
            name = f"step {plan.graph.transforms[producers[destination.arriving]].name}"
        # Copies of a Flatten have one name, and so have all readers of a GroupByKey.
        places[facts.fresh(name, places)] = StoredStage(
            stage=int(id_),
            level=level,
            is_exchanged=levels(plan)[level].has_exchange,
            dest=int(dest),
            is_fed=dest in impulses,
            transform=str(keyed),
            kept=_stored_content(plan, stage, forms, has_maps_in_bags),
            root=root,
        )
    return places


def declared_by_stages(
    plan: Plan, places: Mapping[str, StoredStage]
) -> Mapping[str, frozenset[str]]:
    """Return what declarative steps declare (``Transform.declared``), by the names of stages.

    Args:
        plan: The plan of the pipeline.
        places: What ``stage_places`` returns for it.
    """
    return {
        name: frozenset(plan.graph.transforms[TransformId(place.transform)].declared)
        for name, place in places.items()
        if place.transform
    }


def step_names(plan: Plan) -> Mapping[str, str]:
    """Return the names of the plan's transforms by their ids, which are the labels of metrics."""
    return {str(id_): transform.name for id_, transform in plan.graph.transforms.items()}


SIDE_INPUT = "side input of "
"""The prefix of names of stages that gather a side input; its producer's name follows."""


def _side_input(
    graph: Graph, destination: Destination, producers: Mapping[PCollectionId, TransformId]
) -> str:
    """Name a side input by the step that produces it, since many steps may look it up."""
    producer = graph.transforms[producers[destination.arriving]]
    name = f"{SIDE_INPUT}{producer.name}"
    if len(producer.outputs) > 1:
        tags = {collection: tag for tag, collection in producer.outputs.items()}
        name += f" [{tags[destination.arriving]}]"
    return f"{name} [{destination.access_pattern.split(':')[2]}]"  # beam:side_input:iterable:v1


def _stored_content(plan: Plan, stage: Stage, forms: Forms, has_maps_in_bags: HasMapsInBags) -> str:
    graph, stores = plan.graph, stage.stores
    described: tuple[str, ...] = ()
    parts: list[str] = []
    if Stored.GROUPS in stores:
        parts.append("groups")
    if Stored.VIEW in stores:
        in_parts = facts.windowing(graph, stage.input).gathers_in_parts
        parts.append("a side input in parts" if in_parts else "a side input")
    if Stored.RESTRICTIONS in stores:
        parts.append("restrictions")
    # Stable input waits for side inputs in another stage, but existing checkpoints describe it so.
    if Stored.UNREADY in stores or (stage.side_inputs and stores == {Stored.UNCOMMITTED}):
        parts.append("elements that wait for side inputs")
    if Stored.UNCOMMITTED in stores:
        parts.append("stable input")
    if Stored.KEYS in stores:
        keyed = graph.transforms[stage.transforms[0]]
        parts += facts.states_and_timers(keyed)
        if has_maps_in_bags(graph, keyed):
            parts.append(MAPS_IN_BAGS.strip(", "))
        for form, coders in forms(keyed):
            described += (form, *(urn for id_ in coders for urn in _stored_urns(plan, stage, id_)))
        if Stored.UNSORTED in stores:
            parts.append("time-sorted input")
    return ", ".join([*parts, _digest(plan, stage, described)]) if parts else ""


def _stored_urns(plan: Plan, stage: Stage, coder_id: CoderId) -> Iterator[str]:
    """Yield the URNs of the coder of a state or timer.

    Timers have the keys and windows of the stage's input. If there are side inputs, Beam's Python
    SDK may declare those of a side input: which one, depends on the hashes of names in its process.
    """
    graph = plan.graph
    coder, pairs = graph.coders[coder_id], graph.coders[graph.pcollections[stage.input].coder]
    if coder.urn == urns.CODER_TIMER and stage.side_inputs and pairs.urn == urns.CODER_KV:
        yield coder.urn
        yield from _urns(graph, pairs.components[0])
        yield from _urns(graph, facts.windowing(graph, stage.input).window_coder)
    else:
        yield from _urns(graph, coder_id)


def _urns(graph: Graph, coder_id: CoderId) -> Iterator[str]:
    """Yield the URNs of a coder and its components; pickled payloads differ from run to run.

    Row coders also yield their fields, since rows with other fields might be decoded without error.
    A part that occurs several times is described each time, as the digests in existing checkpoints
    are; ``portable.coder_graphs`` limits how often.
    """
    pending = [coder_id]
    while pending:
        coder = graph.coders[pending.pop()]
        yield coder.urn
        if coder.fields:
            yield coder.fields
        pending.extend(reversed(coder.components))


def _digest(plan: Plan, stage: Stage, states: Iterable[str]) -> str:
    """Return a digest of the coder and windowing of the stage's input, and of its states."""
    windowing = facts.windowing(plan.graph, stage.input)
    described = (
        *_urns(plan.graph, plan.graph.pcollections[stage.input].coder),
        windowing.window_fn_urn,
        # Pickled WindowFns differ from run to run, as pickled coders do.
        windowing.window_fn_parameters if windowing.environment is None else "",
        windowing.trigger,
        *(("accumulating panes",) if windowing.accumulates else ()),
        *(("windows with their end",) if _have_their_end(plan.graph, windowing) else ()),
        *states,
    )
    return hashlib.blake2b("\0".join(described).encode(), digest_size=4).hexdigest()


def _have_their_end(graph: Graph, windowing: Windowing) -> bool:
    """Whether windows are stored with their end, as on edges to SDKs: see ``portable.wire``."""
    is_remote = any(
        environment.urn in IN_SDK_HARNESSES for environment in graph.environments.values()
    )
    return is_remote and graph.coders[windowing.window_coder].urn not in urns.WINDOW_CODERS

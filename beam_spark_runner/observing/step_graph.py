"""The steps of a pipeline and the edges between them, for people who look at it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.dump import KINDS
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.plan.model import Delivery, Plan

_WORDS = {
    urns.PAR_DO: "ParDo",
    urns.GROUP_BY_KEY: "group by key",
    urns.RESHUFFLE: "reshuffle",
    urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS: "splittable DoFn",
    urns.SDF_PAIR_WITH_RESTRICTION: "restrictions",
    urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS: "splits restrictions",
    urns.SDF_TRUNCATE_SIZED_RESTRICTIONS: "truncates restrictions",
}
_SHUFFLES = (urns.GROUP_BY_KEY, urns.RESHUFFLE)


class EdgeKind(Enum):
    """How elements get from one step to another."""

    POINTWISE = "pointwise"  # within a task
    EXCHANGE = "exchange"  # through an exchange of Spark's
    SIDE_INPUT = "side input"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNode:
    """A step that runs.

    Attributes:
        id: The id of its transform.
        name: Its full name, by which the status of an epoch has it.
        kind: What it does, in a word or two.
        segment: The number of the segment in which it runs first. None: in none.
        outputs: The ids of the collections that it makes.
    """

    id: str
    name: str
    kind: str
    segment: int | None
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEdge:
    """A collection on its way from the step that makes it to one that reads it.

    Attributes:
        producer, consumer: The ids of the steps.
        collection: The id of the collection.
        kind: How the elements move.
    """

    producer: str
    consumer: str
    collection: str
    kind: EdgeKind = EdgeKind.POINTWISE


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The steps in topological order, and the edges between them."""

    nodes: tuple[StepNode, ...] = ()
    edges: tuple[StepEdge, ...] = ()


def step_graph(plan: Plan) -> StepGraph:
    """Return the steps of a plan.

    A Flatten that the passes have copied into several stages is as many steps.
    """
    segments: dict[TransformId, int] = {}
    for segment in plan.segments:
        for level in segment.levels:
            for stage in level.stages:
                for step in plan.stages[stage].transforms:
                    segments.setdefault(step, int(segment.id))
        if segment.table_write is not None:
            segments[segment.table_write] = int(segment.id)
    # What the runner executes itself belongs to the stage that reads it.
    reading: dict[PCollectionId, int] = {}
    for id_, transform in reversed([*plan.graph.transforms.items()]):
        segments_of_readers = [
            reading[collection]
            for collection in transform.outputs.values()
            if collection in reading
        ]
        if id_ not in segments and segments_of_readers:
            segments[id_] = min(segments_of_readers)
        if id_ in segments:
            for collection in transform.inputs.values():
                reading[collection] = min(segments[id_], reading.get(collection, segments[id_]))
    nodes = tuple(
        StepNode(
            id=str(id_),
            name=transform.name,
            kind=_kind(transform),
            segment=segments.get(id_),
            outputs=tuple(map(str, transform.outputs.values())),
        )
        for id_, transform in plan.graph.transforms.items()
    )
    return StepGraph(nodes, tuple(_edges(plan)))


def _edges(plan: Plan) -> list[StepEdge]:
    graph = plan.graph
    producers: dict[PCollectionId, list[TransformId]] = {}
    for id_, transform in graph.transforms.items():
        for collection in transform.outputs.values():
            producers.setdefault(collection, []).append(id_)
    exchanged = _exchanged(plan)
    edges = []
    for id_, transform in graph.transforms.items():
        for name, collection in transform.inputs.items():
            kind = EdgeKind.POINTWISE
            if name in transform.side_inputs:
                kind = EdgeKind.SIDE_INPUT
            elif transform.urn in _SHUFFLES or exchanged.get(id_) == collection:
                kind = EdgeKind.EXCHANGE
            edges += [
                StepEdge(
                    producer=str(producer), consumer=str(id_), collection=str(collection), kind=kind
                )
                for producer in producers.get(collection, ())
            ]
    return edges


def _exchanged(plan: Plan) -> Mapping[TransformId, PCollectionId]:
    """Return the steps that begin a stage behind an exchange, with their main inputs."""
    return {
        plan.stages[destination.stage].transforms[0]: destination.arriving
        for destination in plan.destinations.values()
        if destination.stage is not None
        and plan.stages[destination.stage].transforms
        and destination.delivery not in (Delivery.POINTWISE, Delivery.SIDE_INPUT)
    }


def _kind(transform: Transform) -> str:
    word = _WORDS.get(transform.urn) or KINDS.get(transform.urn, "").replace("_", " ")
    if facts.states_and_timers(transform) and transform.urn == urns.PAR_DO:
        word = "stateful ParDo"
    return word or transform.urn

"""Fuse transforms into stages, each with one input and in one environment."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_SDK_HARNESSES
from beam_spark_runner.core.ids import EnvironmentId, PCollectionId, TransformId
from beam_spark_runner.core.table_steps import WRITE_TABLE
from beam_spark_runner.graph.facts import ROOT_URNS, fresh, main_input, side_inputs
from beam_spark_runner.graph.model import FusedStage, Graph, Transform

MAX_COPIES = 16
"""Readers of a collection that is made in more stages than this do not join these stages.

Each stage would have a copy of every reader, each with its own ``setup``; and
a Flatten of a thousand branches would make a thousand copies of everything downstream.
"""

MAX_DEPTH = 100
"""The longest chain of transforms in a stage that runs in an SDK harness.

Python's harness builds the operations of a stage by recursion, four frames for each transform of
a chain, and Python allows 1,000 frames. Stages one after the other run in one task all the same.
"""


def fuse(graph: Graph, *, max_copies: int = MAX_COPIES, max_depth: int = MAX_DEPTH) -> Graph:
    """Gather transforms into ``stages``: as many as possible into the stage of their input.

    A transform joins the stages that make its main input, unless it
    ``breaks_fusion``, needs another environment, or reads a collection of the runner
    (the output of an Impulse, a GroupByKey, a Reshuffle or a table): then a stage
    begins with it. One that takes a partition as one bundle joins only a stage that
    makes all of its input, in one bundle. Transforms that begin at the same
    collection share a stage, unless they break fusion. A reader that cannot join does
    not prevent others from joining. Chains of very many transforms are cut.

    Flattens are unzipped: one joins every stage that makes one of its inputs,
    as a copy with the inputs of that stage, and so do its readers. So each stage
    makes its own part of the flattened collection, and no element is processed twice.

    Groupings and Reshuffles without readers are not run.

    A collection of the runner that is passed on unprocessed (to a GroupByKey, to a side
    input, to a reader that requires stable or sorted input; from a TestStream to a stateful
    reader) gets a stage without transforms.

    Args:
        graph: The graph after ``insert_fusion_breaks``.
        max_copies: The most copies of a transform; see ``MAX_COPIES``.
        max_depth: The longest chain of transforms; see ``MAX_DEPTH``.

    Example:
        a = Impulse; b = A(a); c = GroupByKey(b); d = Flatten(b, c); e = Use(d)
        ==>   stage at a: A Flatten(b) Use;   stage at c: Flatten(c) Use

    Returns:
        A new graph with ``stages``, in an order where producers come first. A
        second run changes nothing.

    Source: Beam Java ``GreedyPipelineFuser``, ``GreedyStageFuser``,
    ``GreedyPCollectionFusers``, ``OutputDeduplicator``; unlike there, readers of
    one collection are placed one by one, since a collection may both be read within
    a stage and leave it.
    """
    if graph.stages:
        return graph
    fuser = _Fuser(graph, max_copies, max_depth)
    for id_, transform in graph.transforms.items():
        fuser.place(id_, transform)
    return fuser.result()


@dataclass(eq=False, slots=True)
class _Growing:
    """A stage to which transforms are still added."""

    input: PCollectionId
    environment: EnvironmentId | None = None  # None: not yet decided
    transforms: list[TransformId] = field(default_factory=list)
    outputs: list[PCollectionId] = field(default_factory=list)
    depths: dict[PCollectionId, int] = field(default_factory=dict)  # transforms up to it

    def accepts(self, environment: EnvironmentId | None) -> bool:
        return self.environment is None or environment is None or self.environment == environment

    def append(self, id_: TransformId, transform: Transform) -> None:
        self.transforms.append(id_)
        self.outputs.extend(transform.outputs.values())
        depth = 1 + max((self.depths.get(id_, 0) for id_ in transform.inputs.values()), default=0)
        self.depths.update(dict.fromkeys(transform.outputs.values(), depth))
        if transform.urn != urns.FLATTEN and self.environment is None:
            self.environment = transform.environment


class _Fuser:
    """Places each transform, in one pass over the graph in topological order."""

    def __init__(self, graph: Graph, max_copies: int, max_depth: int) -> None:
        self._graph = graph
        self._max_copies = max_copies
        self._max_depth = max_depth
        self._stages: list[_Growing] = []
        self._made_in: dict[PCollectionId, tuple[_Growing, ...]] = {}
        self._made_by_runner: set[PCollectionId] = set()
        self._of_test_streams: set[PCollectionId] = set()
        self._known_in: dict[PCollectionId, EnvironmentId | None] = {}  # that knows its coder
        self._carriers: dict[PCollectionId, _Growing] = {}  # stages that only pass it on
        self._siblings: dict[PCollectionId, list[_Growing]] = {}
        self._leaving: set[PCollectionId] = set()  # read outside of the stages that make it
        self._transforms: dict[TransformId, Transform] = {}
        self._ids = set(graph.transforms)
        self._unread = _unread_runner_steps(graph)

    def place(self, id_: TransformId, transform: Transform) -> None:
        environment = transform.environment or self._first_known_in(transform.inputs.values())
        self._known_in.update(dict.fromkeys(transform.outputs.values(), environment))
        for _, collection, _ in side_inputs(transform):
            self._hand_on(collection)
        if transform.urn in ROOT_URNS:
            self._transforms[id_] = transform
            if id_ not in self._unread:
                for collection in transform.inputs.values():
                    self._hand_on(collection)
            self._made_by_runner.update(transform.outputs.values())
            if transform.urn == urns.TEST_STREAM:
                self._of_test_streams.update(transform.outputs.values())
        elif transform.urn == urns.FLATTEN and not transform.side_inputs:
            self._unzip(id_, transform)
        else:
            self._transforms[id_] = transform
            stages = self._stages_for(transform)
            for stage in stages:
                stage.append(id_, transform)
            self._made_in.update(dict.fromkeys(transform.outputs.values(), stages))

    def result(self) -> Graph:
        # Stages that only pass on or flatten elements need an SDK, too, since the coder of rows
        # may change. It must know their coders, so it is the one that made the elements.
        spare = next(iter(self._graph.environments), None)
        stages = tuple(
            FusedStage(
                input=stage.input,
                transforms=tuple(stage.transforms),
                outputs=tuple(output for output in stage.outputs if output in self._leaving),
                environment=stage.environment or self._known_in.get(stage.input) or spare,
            )
            for stage in self._stages
        )
        return replace(self._graph, transforms=self._transforms, stages=stages)

    def _first_known_in(self, collections: Iterable[PCollectionId]) -> EnvironmentId | None:
        return next(filter(None, map(self._known_in.get, collections)), None)

    def _stages_for(self, transform: Transform) -> tuple[_Growing, ...]:
        collection = main_input(transform)
        if (
            transform.requires_stable_input
            or transform.requires_time_sorted_input
            or (transform.is_keyed and collection in self._of_test_streams)
        ):
            self._hand_on(collection)
            return (self._begin(collection),)
        if transform.breaks_fusion:
            self._leave(collection)
            return (self._begin(collection),)
        producers = self._joinable(collection)
        if transform.takes_partition and producers and not self._is_one_bundle(producers):
            producers = None
        if producers and all(stage.accepts(transform.environment) for stage in producers):
            return producers
        return (self._begin_with_siblings(collection, transform.environment),)

    def _is_one_bundle(self, stages: tuple[_Growing, ...]) -> bool:
        """Whether a task makes all its elements of a collection in one bundle."""
        if len(stages) > 1:
            return False
        root = self._transforms[stages[0].transforms[0]] if stages[0].transforms else None
        is_restricted = root and root.urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS
        return not (root and (root.is_keyed or is_restricted))

    def _unzip(self, id_: TransformId, flatten: Transform) -> None:
        parts: dict[_Growing, dict[str, PCollectionId]] = {}
        for local_name, collection in flatten.inputs.items():
            producers = self._joinable(collection)
            if producers is None:
                producers = (self._begin_with_siblings(collection, None),)
            for stage in producers:
                parts.setdefault(stage, {})[local_name] = collection
        for number, (stage, inputs) in enumerate(parts.items()):
            copy_id = id_
            if len(inputs) < len(flatten.inputs):
                copy_id = TransformId(fresh(f"{id_}/{number}", self._ids))
                self._ids.add(copy_id)
            copy = replace(flatten, inputs=inputs)
            self._transforms[copy_id] = copy
            stage.append(copy_id, copy)
        if not parts:
            self._transforms[id_] = flatten
        for output in flatten.outputs.values():
            self._made_in[output] = tuple(parts)

    def _joinable(self, collection: PCollectionId) -> tuple[_Growing, ...] | None:
        """Return the stages that make a collection; None: its readers cannot join them."""
        if collection in self._made_by_runner:
            return None
        producers = self._made_in[collection]
        is_deep = any(self._is_deep(stage, collection) for stage in producers)
        return None if is_deep or len(producers) > self._max_copies else producers

    def _is_deep(self, stage: _Growing, collection: PCollectionId) -> bool:
        """Whether a collection ends the longest chain of transforms that an SDK harness may run."""
        if stage.depths.get(collection, 0) < self._max_depth or stage.environment is None:
            return False
        return self._graph.environments[stage.environment].urn in IN_SDK_HARNESSES

    def _hand_on(self, collection: PCollectionId) -> None:
        """Have a collection leave its stages; one of the runner gets a stage that passes it on."""
        self._leave(collection)
        if collection in self._made_by_runner and collection not in self._carriers:
            carrier = self._begin(collection)
            carrier.outputs.append(collection)
            self._carriers[collection] = carrier

    def _leave(self, collection: PCollectionId) -> None:
        self._leaving.add(collection)

    def _begin(self, collection: PCollectionId) -> _Growing:
        stage = _Growing(collection)
        self._stages.append(stage)
        return stage

    def _begin_with_siblings(
        self, collection: PCollectionId, environment: EnvironmentId | None
    ) -> _Growing:
        self._leave(collection)
        siblings = self._siblings.setdefault(collection, [])
        for stage in siblings:
            if stage.accepts(environment):
                return stage
        stage = self._begin(collection)
        siblings.append(stage)
        return stage


def _unread_runner_steps(graph: Graph) -> set[TransformId]:
    """Find the runner's own steps whose output no other transform uses: they need not run."""
    read: set[PCollectionId] = set()
    unread: set[TransformId] = set()
    for id_, transform in reversed(list(graph.transforms.items())):
        is_unread = transform.urn in ROOT_URNS and read.isdisjoint(transform.outputs.values())
        if is_unread and transform.urn != WRITE_TABLE:
            unread.add(id_)
        else:
            read.update(transform.inputs.values())
    return unread

"""Facts derived from a graph: which step produces a collection, which ones read it, what a step is.

Many functions read the whole graph; callers store the result.
"""

from collections.abc import Container, Iterator, Mapping

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, PCollectionId, TransformId
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE
from beam_spark_runner.graph.model import Coder, Graph, Transform, Windowing

MOVES_FILES = "/ParDo(_MoveTempFilesIntoFinalDestinationFn)"
"""The suffix of the name of the step in which ``fileio.WriteToFiles`` renames files."""

TABLE_URNS = frozenset({READ_TABLE, WRITE_TABLE})
"""Steps of ``ReadFromSpark`` and ``WriteToSpark``."""

FED_URNS = frozenset({urns.IMPULSE, urns.TEST_STREAM}) | TABLE_URNS
"""Steps whose output comes from the driver, not from other stages."""

RUNNER_URNS = FED_URNS | {urns.FLATTEN, urns.GROUP_BY_KEY, urns.RESHUFFLE}
"""Steps that the runner executes itself, without an SDK."""

ROOT_URNS = FED_URNS | {urns.GROUP_BY_KEY, urns.RESHUFFLE}
"""Steps whose output is made by the runner between stages, so that a stage must begin there."""

COMBINE_PART_URNS = frozenset(
    {
        urns.COMBINE_PER_KEY_PRECOMBINE,
        urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS,
        urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS,
        urns.COMBINE_PER_KEY_CONVERT_TO_ACCUMULATORS,
        urns.COMBINE_GROUPED_VALUES,
    }
)

SDF_PART_URNS = frozenset(
    {
        urns.SDF_PAIR_WITH_RESTRICTION,
        urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS,
        urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS,
        urns.SDF_TRUNCATE_SIZED_RESTRICTIONS,
    }
)

_SIZING_URNS = frozenset(
    {urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS, urns.SDF_TRUNCATE_SIZED_RESTRICTIONS}
)

SDK_URNS = (
    frozenset(
        {
            urns.PAR_DO,
            urns.ASSIGN_WINDOWS,
            urns.MAP_WINDOWS,
            urns.READ,
            urns.COMBINE_PER_KEY,
        }
    )
    | COMBINE_PART_URNS
    | SDF_PART_URNS
)
"""Steps that an SDK executes."""

_SOURCE = (
    "beam.io.Read with an UnboundedSource (apache_beam.io.unbounded_source) or a BoundedSource, or "
    "a splittable DoFn"
)
_PUBLISH = (
    "a DoFn that publishes with a client of Pub/Sub, as WriteToPubSub of newer versions of Beam has"
)
_OF_JAVA = "beam:transform:org.apache.beam:"
_SCHEMA_TRANSFORM = "beam:schematransform:org.apache.beam:"
# Beam's ReadFromKafka and WriteToKafka, as Java's expansion services make them: composites whose
# parts Java's SDK runs, or steps without parts, which the runner would have to execute itself.
# Source: ``apache_beam.io.kafka``, ``standard_io.yaml`` of Beam YAML, Java ``KafkaIOTranslation``.
_KAFKA_READS = (
    f"{_OF_JAVA}kafka_read_with_metadata:v1",
    f"{_OF_JAVA}kafka_read_with_metadata:v2",
    f"{_OF_JAVA}kafka_read_without_metadata:v1",
    f"{_SCHEMA_TRANSFORM}kafka_read:v1",
)
_KAFKA_WRITES = (
    f"{_OF_JAVA}kafka_write:v1",
    f"{_OF_JAVA}kafka_write:v2",
    f"{_OF_JAVA}kafka_write_with_headers:v1",
    f"{_SCHEMA_TRANSFORM}kafka_write:v1",
)

ALTERNATIVES: Mapping[str, str] = {
    urns.READ: _SOURCE,
    urns.PUBSUB_READ: f"{_SOURCE}, that pulls messages with a client of Pub/Sub",
    urns.PUBSUB_WRITE: _PUBLISH,
    urns.PUBSUB_WRITE_DYNAMIC: _PUBLISH,
    **dict.fromkeys(
        _KAFKA_READS, "ReadFromKafka of beam_spark_runner.transforms, which needs no Java"
    ),
    **dict.fromkeys(
        _KAFKA_WRITES, "WriteToKafka of beam_spark_runner.transforms, which needs no Java"
    ),
}
"""By URN: what a pipeline may use in place of steps that the runner does not execute, because it
has no source or sink for them, or has a transform in Python."""


def producers(graph: Graph) -> dict[PCollectionId, TransformId]:
    """Find the transform that makes each collection.

    In a fused graph a collection may have several producers; the last one is given.
    """
    return {
        collection: id_
        for id_, transform in graph.transforms.items()
        for collection in transform.outputs.values()
    }


def sized_restrictions(graph: Graph) -> frozenset[PCollectionId]:
    """Find the collections of sized restrictions, which are spread by their sizes.

    They are found by their producers, not by their coders, which elements of users may have, too.
    """
    return frozenset(
        collection
        for transform in graph.transforms.values()
        if transform.urn in _SIZING_URNS
        for collection in transform.outputs.values()
    )


def main_input(transform: Transform) -> PCollectionId:
    """Return the main input of a transform that an SDK executes."""
    (collection,) = transform.main_inputs.values()
    return collection


def side_inputs(transform: Transform) -> Iterator[tuple[str, PCollectionId, str]]:
    """Yield local name, collection and access pattern of each side input."""
    for local_name, access_pattern in transform.side_inputs.items():
        yield local_name, transform.inputs[local_name], access_pattern


def windowing(graph: Graph, collection: PCollectionId) -> Windowing:
    """Return the windowing of a collection."""
    return graph.windowings[graph.pcollections[collection].windowing]


def window_fn_text(windowing: Windowing) -> str:
    """Return the name of a WindowFn, which is equal for those whose windows may be mixed.

    Example:
        fixed_windows (size 5s)

    Source: Java ``WindowFn.isCompatible``.
    """
    kind = windowing.window_fn_urn.removeprefix("beam:window_fn:").removesuffix(":v1")
    parameters = windowing.window_fn_parameters
    return f"{kind} ({parameters})" if parameters else kind


def coder(graph: Graph, collection: PCollectionId) -> Coder:
    """Return the coder of a collection's elements, without timestamp, windows and pane."""
    return graph.coders[graph.pcollections[collection].coder]


def is_splittable(transform: Transform) -> bool:
    """Whether ``expand_splittable`` still has to expand the transform."""
    return transform.urn == urns.PAR_DO and transform.restriction_coder is not None


def states_and_timers(transform: Transform) -> tuple[str, ...]:
    """Name the states and timers of a transform, for people.

    Example:
        ("state count", "timer due")
    """
    states = (f"state {id_}" for id_ in transform.state_ids)
    return (*states, *(f"timer {id_}" for id_ in transform.timer_families))


def fresh(base: str, names: Container[str]) -> str:
    """Return ``base``, or the first of ``base~2``, ``base~3``, … that is not taken."""
    number, name = 1, base
    while name in names:
        number += 1
        name = f"{base}~{number}"
    return name


class CoderTable:
    """The coders of a graph that is being built; equal coders get one id.

    Example:
        >>> table = CoderTable({CoderId("b"): Coder(urn=urns.CODER_BYTES)})
        >>> table.add(Coder(urn=urns.CODER_BYTES))
        'b'
    """

    def __init__(self, coders: Mapping[CoderId, Coder]) -> None:
        self.coders = dict(coders)
        self._ids: dict[Coder, CoderId] = {}
        for id_, coder in coders.items():
            self._ids.setdefault(coder, id_)

    def add(self, coder: Coder) -> CoderId:
        """Return the id of ``coder``, which is added if it is new."""
        known_id = self._ids.get(coder)
        if known_id is not None:
            return known_id
        kind = coder.urn.removeprefix("beam:coder:").split(":")[0]
        text = f"{kind}<{','.join(coder.components)}>" if coder.components else kind
        id_ = CoderId(fresh(text, self.coders))
        self.coders[id_] = coder
        self._ids[coder] = id_
        return id_

    def kv(self, key: CoderId, value: CoderId) -> CoderId:
        """Return the id of the coder of KVs."""
        return self.add(Coder(urn=urns.CODER_KV, components=(key, value)))

    def iterable(self, element: CoderId) -> CoderId:
        """Return the id of the coder of iterables."""
        return self.add(Coder(urn=urns.CODER_ITERABLE, components=(element,)))

    def double(self) -> CoderId:
        """Return the id of the coder of doubles."""
        return self.add(Coder(urn=urns.CODER_DOUBLE))


def users_steps(graph: Graph) -> Mapping[str, str]:
    """Return the name by which users know each step (``Transform.step``), by its full name."""
    return {transform.name: transform.step for transform in graph.transforms.values()}

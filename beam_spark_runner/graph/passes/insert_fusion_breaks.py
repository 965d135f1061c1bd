"""Mark the transforms that must be the first of a stage."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import main_input, producers
from beam_spark_runner.graph.model import Graph, Transform

_ALWAYS_ROOTS = frozenset(
    {urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS, urns.SDF_TRUNCATE_SIZED_RESTRICTIONS}
)


def insert_fusion_breaks(graph: Graph) -> Graph:
    """Set ``breaks_fusion`` on keyed transforms, side-input readers and SDF process steps.

    A keyed transform needs its input partitioned by key, a transform with side inputs
    must wait for them, one that requires stable input needs it to be stored first,
    and sized restrictions are redistributed before they are processed: each of them
    must be the first transform of its stage.

    The splitting of an SDF reads the same side inputs as the pairing right before
    it, so it needs no separate break.

    Example:
        impulse -> parse -> count(state)   ==>   [impulse parse] [count*]

    Returns:
        A new graph. ``graph`` is untouched; a second run changes nothing.

    Source: Beam Java ``GreedyPCollectionFusers.canFuseParDo``.
    """
    producer = producers(graph)

    def must_break(transform: Transform) -> bool:
        if transform.urn in _ALWAYS_ROOTS or transform.is_keyed or transform.requires_stable_input:
            return True
        return bool(transform.side_inputs) and not follows_its_pairing(transform)

    def follows_its_pairing(transform: Transform) -> bool:
        if transform.urn != urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS:
            return False
        producer_id = producer.get(main_input(transform))
        if producer_id is None:
            return False
        pairing = graph.transforms[producer_id]
        return pairing.urn == urns.SDF_PAIR_WITH_RESTRICTION and all(
            pairing.inputs.get(local_name) == transform.inputs[local_name]
            and pairing.side_inputs.get(local_name) == access_pattern
            for local_name, access_pattern in transform.side_inputs.items()
        )

    return replace(
        graph,
        transforms={
            id_: replace(transform, breaks_fusion=True) if must_break(transform) else transform
            for id_, transform in graph.transforms.items()
        },
    )

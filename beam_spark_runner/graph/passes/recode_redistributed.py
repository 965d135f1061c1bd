"""Encode redistributed elements, in the stage that makes them, by the coder of their readers."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, PCollectionId, TransformId
from beam_spark_runner.graph.facts import fresh
from beam_spark_runner.graph.model import Graph, Transform


def recode_redistributed(graph: Graph) -> Graph:
    """Insert a Flatten before each Reshuffle whose output has another coder, to that coder.

    The rows of a Reshuffle are encoded by its producer, and no SDK decodes them in between. Python
    gives the input of a stateful step, and so the output of a Reshuffle before it, a KV coder with
    deterministic keys; the input of the Reshuffle may have a coder in which the runner sees no
    keys. In the producer's stage, the Flatten only changes an encoding that takes place anyway.

    Example:
        Spread: reshuffle(pairs) -> spread, of other coders   ==>
        Spread/Recode: flatten(pairs) -> recoded; Spread: reshuffle(recoded) -> spread

    Source: Beam ``ForceKvInputTypes``, in Python's ``Pipeline.to_runner_api``.
    """
    transforms: dict[TransformId, Transform] = {}
    pcollections = dict(graph.pcollections)
    ids = {*graph.transforms}
    for id_, transform in graph.transforms.items():
        transforms[id_] = transform
        if transform.urn != urns.RESHUFFLE:
            continue
        ((name, source),) = transform.inputs.items()
        (target,) = transform.outputs.values()
        coder = graph.pcollections[target].coder
        if _are_alike(graph, graph.pcollections[source].coder, coder):
            continue
        recoded = PCollectionId(fresh(f"{transform.name}/Recode.out", pcollections))
        pcollections[recoded] = replace(graph.pcollections[source], name=recoded, coder=coder)
        flatten_id = TransformId(fresh(f"{id_}/Recode", ids))
        ids.add(flatten_id)
        del transforms[id_]  # the Flatten comes first
        transforms[flatten_id] = Transform(
            name=f"{transform.name}/Recode",
            part_of=transform.step,
            urn=urns.FLATTEN,
            inputs={"in": source},
            outputs={"out": recoded},
        )
        transforms[id_] = replace(transform, inputs={name: recoded})
    if len(transforms) == len(graph.transforms):
        return graph
    return replace(graph, transforms=transforms, pcollections=pcollections)


def _are_alike(graph: Graph, one: CoderId, other: CoderId) -> bool:
    """Whether two coders are of the same kinds, with the same parameters.

    Coders share parts, so that a pair of parts may occur in many places; it is compared once.
    """
    pending, seen = [(one, other)], set()
    while pending:
        pair = pending.pop()
        if pair[0] == pair[1] or pair in seen:
            continue
        seen.add(pair)
        first, second = (graph.coders[id_] for id_ in pair)
        # The payload of a row coder has a random id, so that fields are compared.
        if first.urn != second.urn or first.fields != second.fields:
            return False
        if not first.fields and first.payload != second.payload:
            return False
        if len(first.components) != len(second.components):
            return False
        pending.extend(zip(first.components, second.components, strict=True))
    return True

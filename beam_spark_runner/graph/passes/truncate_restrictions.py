"""Insert the step that truncates restrictions when a pipeline is drained."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph.facts import fresh, main_input, producers
from beam_spark_runner.graph.model import Graph, Transform

_PROCESS = urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS
_TRUNCATE = urns.SDF_TRUNCATE_SIZED_RESTRICTIONS


def truncate_restrictions(graph: Graph) -> Graph:
    """Put a TruncateSizedRestrictions before each Process, after ``expand_splittable``.

    By default, bounded restrictions stay as they are and unbounded ones are dropped; a
    restriction provider may truncate them otherwise. So unbounded sources end.

    Example:
        split -> Read/Process -> lines   ==>
        split -> Read/TruncateRestriction -> Read/Process -> lines

    Returns:
        A new graph. A second run changes nothing.

    Source: Beam ``translations.expand_sdf`` with ``is_drain``.
    """
    producer = producers(graph)
    pcollections = dict(graph.pcollections)
    transforms: dict[TransformId, Transform] = {}
    ids = set(graph.transforms)
    for id_, process in graph.transforms.items():
        if process.urn != _PROCESS:
            transforms[id_] = process
            continue
        ((local_name, source_id),) = process.main_inputs.items()
        producer_id = producer.get(main_input(process))
        if producer_id is not None and graph.transforms[producer_id].urn == _TRUNCATE:
            transforms[id_] = process
            continue
        source = graph.pcollections[source_id]
        name = process.name.removesuffix("/Process") + "/TruncateRestriction"
        truncated_id = PCollectionId(fresh(f"{source_id}_truncated", pcollections))
        pcollections[truncated_id] = replace(source, name=f"{name}.out")
        new_id = TransformId(fresh(id_.removesuffix("/Process") + "/TruncateRestriction", ids))
        ids.add(new_id)
        transforms[new_id] = replace(
            process,
            name=name,
            part_of=process.step,
            urn=_TRUNCATE,
            outputs={"out": truncated_id},
            requires_stable_input=False,
            finalizes_bundles=False,
        )
        transforms[id_] = replace(process, inputs={**process.inputs, local_name: truncated_id})
    return replace(graph, transforms=transforms, pcollections=pcollections)

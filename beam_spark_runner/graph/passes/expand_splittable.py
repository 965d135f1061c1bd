"""Expand each splittable DoFn into pairing, splitting and processing of restrictions."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph.facts import CoderTable, fresh, is_splittable
from beam_spark_runner.graph.model import Graph, Transform


def expand_splittable(graph: Graph) -> Graph:
    """Replace each splittable ParDo by PairWithRestriction, SplitAndSize and Process.

    Between splitting and processing, the sized restrictions can be spread over
    the cluster. All three get the payload and the side inputs of the ParDo, which its
    restriction provider may read, too. Only the processing requires stable input: the
    others have no effects that a retry could duplicate.

    The elements after the pairing are KV<element, R>, those after the splitting
    KV<KV<element, R>, double>, where R is encoded by ``restriction_coder``, in
    which SDKs include the watermark estimator's state.

    Example:
        files -> Read -> lines   ==>
        files -> Read/PairWithRestriction -> Read/SplitAndSizeRestriction -> Read/Process -> lines

    Returns:
        A new graph. A second run changes nothing.

    Source: Beam ``translations.expand_sdf``, Java ``SplittableParDoExpander``.
    """
    if not any(is_splittable(transform) for transform in graph.transforms.values()):
        return graph
    coders = CoderTable(graph.coders)
    pcollections = dict(graph.pcollections)
    transforms: dict[TransformId, Transform] = {}
    ids = set(graph.transforms)

    def add(transform: Transform, id_: TransformId, part: str) -> None:
        new_id = TransformId(fresh(id_ + part, ids))
        ids.add(new_id)
        transforms[new_id] = replace(transform, name=transform.name + part, part_of=transform.step)

    for id_, read in graph.transforms.items():
        if not is_splittable(read) or read.restriction_coder is None:
            transforms[id_] = read
            continue
        ((local_name, source_id),) = read.main_inputs.items()
        source = graph.pcollections[source_id]
        paired = coders.kv(source.coder, read.restriction_coder)
        sized = coders.kv(paired, coders.double())
        paired_id = PCollectionId(fresh(f"{source_id}_paired", pcollections))
        pcollections[paired_id] = replace(
            source, name=f"{read.name}/PairWithRestriction.out", coder=paired
        )
        split_id = PCollectionId(fresh(f"{source_id}_split", pcollections))
        pcollections[split_id] = replace(
            source, name=f"{read.name}/SplitAndSizeRestriction.out", coder=sized
        )

        # Neither runs ``process``.
        idempotent = replace(read, requires_stable_input=False, finalizes_bundles=False)
        pair = replace(idempotent, urn=urns.SDF_PAIR_WITH_RESTRICTION, outputs={"out": paired_id})
        split = replace(
            idempotent,
            urn=urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS,
            inputs={**read.inputs, local_name: paired_id},
            outputs={"out": split_id},
        )
        process = replace(
            read,
            urn=urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS,
            inputs={**read.inputs, local_name: split_id},
        )
        add(pair, id_, "/PairWithRestriction")
        add(split, id_, "/SplitAndSizeRestriction")
        add(process, id_, "/Process")

    return replace(graph, transforms=transforms, pcollections=pcollections, coders=coders.coders)

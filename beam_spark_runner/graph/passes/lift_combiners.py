"""Split each CombinePerKey into the parts before and after its grouping."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph.facts import CoderTable, fresh, main_input
from beam_spark_runner.graph.model import Graph, PCollection, Transform


def lift_combiners(graph: Graph) -> Graph:
    """Replace each CombinePerKey by Precombine, GroupByKey, Merge and ExtractOutputs.

    Precombine combines the elements of a bundle by key, so that accumulators
    are shuffled in place of elements. Each part gets the payload unchanged: the
    URN tells the SDK which part of the CombineFn to run.

    Example:
        ages -> Mean -> out   ==>
        ages -> Mean/Precombine -> Mean/Group -> Mean/Merge -> Mean/ExtractOutputs -> out

    Returns:
        A new graph. A graph without CombinePerKey, because the client has lifted
        all of them, is returned unchanged.

    Source: Beam ``translations.lift_combiners``.
    """
    if all(transform.urn != urns.COMBINE_PER_KEY for transform in graph.transforms.values()):
        return graph
    coders = CoderTable(graph.coders)
    pcollections = dict(graph.pcollections)
    transforms: dict[TransformId, Transform] = {}
    ids = set(graph.transforms)

    def add_collection(name: str, like: PCollection) -> PCollectionId:
        id_ = PCollectionId(fresh(name, pcollections))
        pcollections[id_] = replace(like, name=name)
        return id_

    def add(transform: Transform, id_: TransformId, part: str) -> None:
        new_id = TransformId(fresh(id_ + part, ids)) if part else id_
        ids.add(new_id)
        transforms[new_id] = transform

    for id_, combine in graph.transforms.items():
        if combine.urn != urns.COMBINE_PER_KEY or combine.accumulator_coder is None:
            add(combine, id_, "")
            continue
        name, accumulator = combine.name, combine.accumulator_coder
        source = graph.pcollections[main_input(combine)]
        (output,) = combine.outputs.values()
        key = graph.coders[source.coder].components[0]
        folded = coders.kv(key, accumulator)
        grouped = coders.kv(key, coders.iterable(accumulator))

        target = graph.pcollections[output]
        precombined_id = add_collection(f"{name}/Precombine.out", replace(source, coder=folded))
        grouped_id = add_collection(f"{name}/Group.out", replace(target, coder=grouped))
        merged_id = add_collection(f"{name}/Merge.out", replace(target, coder=folded))

        precombine = replace(
            combine,
            name=f"{name}/Precombine",
            part_of=combine.step,
            urn=urns.COMBINE_PER_KEY_PRECOMBINE,
            outputs={"out": precombined_id},
        )
        group = Transform(
            name=f"{name}/Group",
            part_of=combine.step,
            urn=urns.GROUP_BY_KEY,
            inputs={"in": precombined_id},
            outputs={"out": grouped_id},
        )
        merge = replace(
            combine,
            name=f"{name}/Merge",
            part_of=combine.step,
            urn=urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS,
            inputs={"in": grouped_id},
            outputs={"out": merged_id},
        )
        extract = replace(
            combine,
            name=f"{name}/ExtractOutputs",
            part_of=combine.step,
            urn=urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS,
            inputs={"in": merged_id},
        )
        add(precombine, id_, "/Precombine")
        add(group, id_, "/Group")
        add(merge, id_, "/Merge")
        add(extract, id_, "/ExtractOutputs")

    return replace(graph, transforms=transforms, pcollections=pcollections, coders=coders.coders)

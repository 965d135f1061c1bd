"""The part of a stage that merges accumulators, which epochs also run alone."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.model import Stage


def merging_part(graph: Graph, stage: Stage) -> Stage | None:
    """Return the stage reduced to its merging step, if that step is the only reader of its input.

    Example:
        stage [Sum/Merge Sum/ExtractOutputs Format] : groups -> text
        ==>   stage [Sum/Merge] : groups -> merged
    """
    readers = [
        id_ for id_ in stage.transforms if stage.input in graph.transforms[id_].inputs.values()
    ]
    if len(readers) != 1 or stage.input in stage.outputs:
        return None
    merge = graph.transforms[readers[0]]
    if merge.urn != urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS:
        return None
    (output,) = merge.outputs.values()
    return replace(
        stage, transforms=(readers[0],), outputs=(output,), is_keyed=False, stores=frozenset()
    )

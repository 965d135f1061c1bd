"""Refuse features that streaming pipelines cannot use yet, all of them in one error."""

from beam_spark_runner.core.errors import (
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.graph.facts import TABLE_URNS
from beam_spark_runner.graph.model import Graph


def refuse_unstreamable(graph: Graph) -> Graph:
    """Collect all features that cannot run in epochs, and raise them in one error.

    Example:
        a pardo that needs all input, a write_table   ==>   a problem with the pardo, and one with
        the write

    Returns:
        ``graph`` itself.

    Raises:
        PipelineRefusedError: with an UnsupportedFeatureError for each problem, each naming its
            step.
    """
    problems = [
        UnsupportedFeatureError("a full-window partition in a streaming pipeline", transform.step)
        for transform in graph.transforms.values()
        if transform.needs_all_input
    ]
    problems += [
        UnsupportedFeatureError(
            "a Spark table in a streaming pipeline", transform.step, "it in a batch pipeline"
        )
        for transform in graph.transforms.values()
        if transform.urn in TABLE_URNS
    ]
    if problems:
        raise PipelineRefusedError(problems)
    return graph

"""Refuse what a pipeline that runs in epochs cannot have yet, before anything runs, all at once."""

from collections.abc import Iterator

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph, Transform


def refuse_unstreamable(graph: Graph) -> Graph:
    """Collect what cannot stream, and raise it together.

    Example:
        test_stream -> enrich(side input rates)   ==>   a problem with the side input

    Returns:
        ``graph`` itself.

    Raises:
        PipelineRefusedError: with an UnsupportedFeatureError for each problem, each naming its
            step.
    """
    test_streams = [
        transform for transform in graph.transforms.values() if transform.urn == urns.TEST_STREAM
    ]
    problems = [
        UnsupportedFeatureError("a second TestStream", transform.name)
        for transform in test_streams[1:]
    ] + [
        UnsupportedFeatureError(f"in a streaming pipeline, {what}", transform.name)
        for transform in graph.transforms.values()
        for what in _unstreamable(graph, transform)
    ]
    if problems:
        raise PipelineRefusedError(problems)
    return graph


def _unstreamable(graph: Graph, transform: Transform) -> Iterator[str]:
    if transform.side_inputs:
        yield "a side input"
    if transform.requires_stable_input:
        yield "stable input (@RequiresStableInput)"
    if transform.requires_time_sorted_input:
        yield "input in the order of event time (@RequiresTimeSortedInput)"
    if facts.is_splittable(transform) and not all(
        graph.pcollections[output].is_bounded for output in transform.outputs.values()
    ):
        yield "a splittable DoFn whose output is unbounded"

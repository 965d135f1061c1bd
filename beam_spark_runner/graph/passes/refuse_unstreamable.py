"""Refuse what a pipeline that runs in epochs cannot have yet, before anything runs, all at once."""

from collections.abc import Iterator

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    PipelineRefusedError,
    UnsupportedFeatureError,
)
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
    if problems := unstreamable(graph):
        raise PipelineRefusedError(problems)
    return graph


def unstreamable(graph: Graph) -> list[UnsupportedFeatureError]:
    """Return what ``refuse_unstreamable`` refuses."""
    test_streams = [
        transform for transform in graph.transforms.values() if transform.urn == urns.TEST_STREAM
    ]
    return [
        UnsupportedFeatureError("a second TestStream", transform.name)
        for transform in test_streams[1:]
    ] + [
        UnsupportedFeatureError(f"in a streaming pipeline, {what}", transform.name)
        for transform in graph.transforms.values()
        for what in _unstreamable(transform)
    ]


def _unstreamable(transform: Transform) -> Iterator[str]:
    if transform.requires_stable_input:
        yield "stable input (@RequiresStableInput)"
    if transform.requires_time_sorted_input:
        yield "input in the order of event time (@RequiresTimeSortedInput)"

"""Refuse features that streaming pipelines cannot use yet, all of them in one error."""

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.graph.model import Graph


def refuse_unstreamable(graph: Graph) -> Graph:
    """Collect what cannot stream, and raise it together.

    Example:
        two test_streams   ==>   a problem with the second one

    Returns:
        ``graph`` itself.

    Raises:
        PipelineRefusedError: with an UnsupportedFeatureError for each problem, each naming its
            step.
    """
    test_streams = [
        transform for transform in graph.transforms.values() if transform.urn == urns.TEST_STREAM
    ]
    if len(test_streams) > 1:
        raise PipelineRefusedError(
            [
                UnsupportedFeatureError("a second TestStream", transform.name)
                for transform in test_streams[1:]
            ]
        )
    return graph

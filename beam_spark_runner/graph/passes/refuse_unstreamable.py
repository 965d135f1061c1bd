"""Refuse features that streaming pipelines cannot use yet, all of them in one error."""

from collections.abc import Iterable, Iterator

from beam_spark_runner.core.errors import (
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE
from beam_spark_runner.graph.model import Graph, Transform


def refuse_unstreamable(graph: Graph) -> Graph:
    """Collect all features that cannot run in epochs, and raise them in one error.

    Example:
        a pardo that needs all input, a read_table   ==>   a problem with the pardo, and one with
        the read

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
            "a read of a Spark table in a streaming pipeline",
            transform.step,
            "it in a batch pipeline",
        )
        for transform in graph.transforms.values()
        if transform.urn == READ_TABLE
    ]
    for transform in graph.transforms.values():
        if transform.urn == WRITE_TABLE:
            problems += _problems_of_write(graph, transform)
    if problems:
        raise PipelineRefusedError(problems)
    return graph


def _problems_of_write(graph: Graph, transform: Transform) -> Iterator[UnsupportedFeatureError]:
    # ``WriteToSpark`` has a step that decodes the result. In a stream, there is never any.
    decoded = _read_from(graph, transform.outputs.values())
    if readers := _read_from(graph, [each for step in decoded for each in step.outputs.values()]):
        yield UnsupportedFeatureError(
            "a step that reads the result of WriteToSpark in a streaming pipeline",
            readers[0].step,
        )


def _read_from(graph: Graph, collections: Iterable[PCollectionId]) -> list[Transform]:
    found = frozenset(collections)
    return [
        each for each in graph.transforms.values() if not found.isdisjoint(each.inputs.values())
    ]

"""Refuses window coders and window mappings that the runner does not support."""

from collections.abc import Iterator

from apache_beam.portability import python_urns

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    PipelineError,
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.plan.dropping import known_to_the_user
from beam_spark_runner.portable.environment_facts import can_do, has_remote_code
from beam_spark_runner.portable.window_mapping import MappedBy, is_pickled, mapped_by


def check_windows(graph: Graph, *, is_streaming: bool) -> None:
    """Refuse unsupported window coders and mappings, all of them in one error.

    Args:
        graph: The graph after all passes.
        is_streaming: Whether the pipeline runs in epochs, where the runner maps windows.

    Raises:
        PipelineRefusedError: With all problems, each with its step.
    """
    problems: list[PipelineError] = []
    if has_remote_code(graph):
        for transform in graph.transforms.values():
            problems += _problems_of_coders(graph, transform)
    if is_streaming:
        problems += _problems_of_mappings(graph)
    if problems:
        raise PipelineRefusedError(problems)


def _problems_of_coders(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    if transform.environment is None:
        return
    collections = (*transform.inputs.values(), *transform.outputs.values())
    ids = {facts.windowing(graph, collection).window_coder for collection in collections}
    for id_ in sorted(ids):
        urn = graph.coders[id_].urn
        if urn in urns.WINDOW_CODERS:
            continue
        if not can_do(graph, transform.environment, urns.CODER_CUSTOM_WINDOW):
            yield UnsupportedFeatureError(
                f"windows of the coder {urn} of an SDK that does not have "
                f"{urns.CODER_CUSTOM_WINDOW}",
                transform.name,
            )
    # Java's SDK does not encode windows of residuals with their end, whatever the coder is.
    leaves_residuals = transform.urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS
    is_pythons = can_do(graph, transform.environment, python_urns.PACKED_COMBINE_FN)
    if leaves_residuals and not is_pythons:
        urn = graph.coders[facts.windowing(graph, facts.main_input(transform)).window_coder].urn
        if urn not in urns.WINDOW_CODERS:
            feature = f"a splittable DoFn in windows of the coder {urn}"
            yield UnsupportedFeatureError(f"{feature} of another SDK than Python's", transform.name)


def _problems_of_mappings(graph: Graph) -> Iterator[PipelineError]:
    for stage in graph.stages:
        for id_ in stage.transforms:
            for name in graph.transforms[id_].side_inputs:
                reader = graph.transforms[known_to_the_user(graph, id_)]
                if mapped_by(graph, reader, name) is not MappedBy.FUNCTION:
                    continue
                if not is_pickled(reader, name):
                    yield InvalidPipelineError(
                        f"its side input {name} has no window mapping of Python's", reader.name
                    )

"""Compiles the graph of a pipeline to a plan."""

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.graph.passes import (
    BATCH,
    DRAINING,
    STREAMING,
    Observer,
    ignore,
    run_passes,
)
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.coders import Coders, check_key_coders
from beam_spark_runner.portable.placing import merge_environments, place_code
from beam_spark_runner.portable.test_stream import events_of, service_of
from beam_spark_runner.portable.window_checks import check_windows


def compile_graph(
    graph: Graph,
    *,
    allow_non_deterministic_key_coders: bool = False,
    drains: bool = False,
    is_streaming: bool = False,
    has_checkpoints: bool = False,
    separates_levels: bool = False,
    is_apart: bool = False,
    observe: Observer = ignore,
) -> Plan:
    """Compile a pipeline to a plan; this runs nothing and opens no resources.

    Args:
        graph: The graph of ``portable.pipeline``, whose environments are those that run.
        allow_non_deterministic_key_coders: Beam's option of that name.
        drains: Whether splittable DoFns truncate their restrictions before they process them. An
            unbounded pipeline then runs in batch, unless it has checkpoints.
        is_streaming: ``--streaming``: whether the pipeline streams even if all PCollections are
            bounded.
        has_checkpoints: Whether ``--checkpoint_dir`` or ``--savepoint_path`` is set, so that
            ``drains`` continues from stored data.
        separates_levels: See ``build``, of a pipeline that runs in batch.
        is_apart: Whether neither this process nor the Python workers may run code of the pipeline's
            author. Then pickled key coders of the Python SDK are not checked.
        observe: Is called with the graph after each pass.

    Raises:
        PipelineRefusedError: Lists all parts of the pipeline that this runner cannot run.
        InvalidPipelineError: The proto is invalid.
    """
    placed_graph = place_code(merge_environments(graph), apart=is_apart)
    has_ending_sources = drains and not has_checkpoints
    in_epochs = _runs_in_epochs(
        placed_graph, has_ending_sources=has_ending_sources, is_streaming=is_streaming
    )
    passes = STREAMING if in_epochs else DRAINING if drains else BATCH
    final_graph = run_passes(placed_graph, passes, observe)
    coders = Coders(final_graph, may_unpickle=not is_apart)
    check_key_coders(
        final_graph, coders, allow_non_deterministic_key_coders=allow_non_deterministic_key_coders
    )
    check_windows(final_graph, is_streaming=in_epochs)
    return build(
        final_graph, is_streaming=in_epochs, separates_levels=separates_levels and not in_epochs
    )


def _runs_in_epochs(graph: Graph, *, has_ending_sources: bool, is_streaming: bool) -> bool:
    """Whether a pipeline streams.

    Args:
        graph: The pipeline.
        has_ending_sources: Whether all its sources are bounded, since their restrictions are
            truncated.
        is_streaming: See ``compile_graph``.

    Raises:
        InvalidPipelineError: The events of a TestStream are invalid.
    """
    test_streams = [
        transform for transform in graph.transforms.values() if transform.urn == urns.TEST_STREAM
    ]
    for test_stream in test_streams:
        if service_of(test_stream) is None:
            events_of(test_stream)
    if test_streams or (is_streaming and not has_ending_sources):
        return True
    outputs = (id_ for transform in graph.transforms.values() for id_ in transform.outputs.values())
    return not has_ending_sources and not all(graph.pcollections[id_].is_bounded for id_ in outputs)

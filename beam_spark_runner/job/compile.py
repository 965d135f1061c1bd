"""Compiles the pipeline's proto to a plan. START READING HERE."""

from apache_beam.portability.api import beam_runner_api_pb2

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
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import place_code
from beam_spark_runner.portable.test_stream import events_of, service_of
from beam_spark_runner.portable.window_checks import check_windows


def compile_pipeline(
    pipeline: beam_runner_api_pb2.Pipeline,
    *,
    allow_non_deterministic_key_coders: bool = False,
    drains: bool = False,
    streams: bool = False,
    has_checkpoints: bool = False,
    expands_reshuffles: bool = False,
    apart: bool = False,
    observe: Observer = ignore,
) -> Plan:
    """Compile a pipeline's proto to a plan; this runs nothing and opens no resources.

    Args:
        pipeline: The proto as an SDK made it, with or without combiners that its client has lifted.
        allow_non_deterministic_key_coders: Beam's option of that name.
        drains: Whether splittable DoFns truncate their restrictions before they process them. An
            unbounded pipeline then runs in batch, unless it has checkpoints.
        streams: ``--streaming``: whether the pipeline streams even if all PCollections are bounded.
        has_checkpoints: Whether ``--checkpoint_dir`` or ``--savepoint_path`` is set, so that
            ``drains`` continues from stored data.
        expands_reshuffles: Whether a Reshuffle runs as the SDK has expanded it, in place of the
            runner's own exchange.
        apart: Whether neither this process nor the Python workers may run code of the pipeline's
            author. Then pickled key coders of the Python SDK are not checked.
        observe: Is called with the graph after each pass.

    Raises:
        PipelineRefusedError: Lists all parts of the pipeline that this runner cannot run.
        InvalidPipelineError: The proto is invalid.
    """
    described = place_code(from_proto(pipeline, expands_reshuffles=expands_reshuffles), apart=apart)
    ends = drains and not has_checkpoints
    in_epochs = _runs_in_epochs(described, ends=ends, streams=streams)
    passes = STREAMING if in_epochs else DRAINING if drains else BATCH
    graph = run_passes(described, passes, observe)
    coders = Coders(graph, may_unpickle=not apart)
    check_key_coders(
        graph, coders, allow_non_deterministic_key_coders=allow_non_deterministic_key_coders
    )
    check_windows(graph, streams=in_epochs)
    return build(graph, streams=in_epochs)


def _runs_in_epochs(graph: Graph, *, ends: bool, streams: bool) -> bool:
    """Whether a pipeline streams.

    Args:
        graph: The pipeline.
        ends: Whether all its sources are bounded, since their restrictions are truncated.
        streams: See ``compile_pipeline``.

    Raises:
        InvalidPipelineError: The events of a TestStream are invalid.
    """
    plays = [each for each in graph.transforms.values() if each.urn == urns.TEST_STREAM]
    for test_stream in plays:
        if service_of(test_stream) is None:
            events_of(test_stream)
    if plays or (streams and not ends):
        return True
    made = (id_ for each in graph.transforms.values() for id_ in each.outputs.values())
    return not ends and not all(graph.pcollections[id_].is_bounded for id_ in made)

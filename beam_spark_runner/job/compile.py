"""From the proto to the plan. START READING HERE."""

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
    may_unpickle: bool = True,
    observe: Observer = ignore,
) -> Plan:
    """Compile a pipeline. Nothing has run, and nothing was opened, when this returns or raises.

    Args:
        pipeline: as an SDK wrote it; client-side optimisations (lifted combiners) are fine.
        allow_non_deterministic_key_coders: Beam's option of that name.
        drains: splittable DoFns truncate their restrictions before they process them. A pipeline
            that would stream runs in batch then, unless it has checkpoints.
        streams: ``--streaming``: it streams, although all of its collections are bounded.
        has_checkpoints: ``--checkpoint_dir`` is set: what an earlier run has left there is drained.
        expands_reshuffles: what Beam's SDK put into a Reshuffle runs, not ours in its place.
        may_unpickle: whether this process may run code of whoever wrote the pipeline. Without
            it, key coders of Python that are pickled are not checked.
        observe: sees the graph after each pass.

    Raises:
        PipelineRefusedError: with everything in it that this runner cannot run.
        InvalidPipelineError: it is not a legal proto.
    """
    described = from_proto(pipeline, expands_reshuffles=expands_reshuffles)
    ends = drains and not has_checkpoints
    in_epochs = _runs_in_epochs(described, ends=ends, streams=streams)
    passes = STREAMING if in_epochs else DRAINING if drains else BATCH
    graph = run_passes(described, passes, observe)
    coders = Coders(graph, may_unpickle=may_unpickle)
    check_key_coders(
        graph, coders, allow_non_deterministic_key_coders=allow_non_deterministic_key_coders
    )
    check_windows(graph, coders, streams=in_epochs)
    return build(graph, streams=in_epochs)


def _runs_in_epochs(graph: Graph, *, ends: bool, streams: bool) -> bool:
    """Whether a pipeline streams.

    Args:
        graph: the pipeline.
        ends: truncated restrictions make its sources bounded.
        streams: see ``compile_pipeline``.

    Raises:
        InvalidPipelineError: events of a TestStream are wrong.
    """
    plays = [each for each in graph.transforms.values() if each.urn == urns.TEST_STREAM]
    for test_stream in plays:
        if service_of(test_stream) is None:
            events_of(test_stream)
    if plays or (streams and not ends):
        return True
    made = (id_ for each in graph.transforms.values() for id_ in each.outputs.values())
    return not ends and not all(graph.pcollections[id_].is_bounded for id_ in made)

"""From the proto to the plan. START READING HERE."""

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import OptionsError
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
from beam_spark_runner.portable.test_stream import events_of


def compile_pipeline(
    pipeline: beam_runner_api_pb2.Pipeline,
    *,
    allow_non_deterministic_key_coders: bool = False,
    drains: bool = False,
    streams: bool = False,
    expands_reshuffles: bool = False,
    may_unpickle: bool = True,
    observe: Observer = ignore,
) -> Plan:
    """Compile a pipeline. Nothing has run, and nothing was opened, when this returns or raises.

    Args:
        pipeline: as an SDK wrote it; client-side optimisations (lifted combiners) are fine.
        allow_non_deterministic_key_coders: Beam's option of that name.
        drains: splittable DoFns truncate their restrictions before they process them.
        streams: ``--streaming``: a pipeline without an end is not to be taken for a batch.
        expands_reshuffles: what Beam's SDK put into a Reshuffle runs, not ours in its place.
        may_unpickle: whether this process may run code of whoever wrote the pipeline. Without
            it, key coders of Python that are pickled are not checked.
        observe: sees the graph after each pass.

    Raises:
        PipelineRefusedError: with everything in it that this runner cannot run.
        InvalidPipelineError: it is not a legal proto.
        OptionsError: it is to stream, and has an unbounded collection.
    """
    described = from_proto(pipeline, expands_reshuffles=expands_reshuffles)
    plays = [each for each in described.transforms.values() if each.urn == urns.TEST_STREAM]
    for test_stream in plays:
        events_of(test_stream)  # raises if they are wrong
    passes = STREAMING if plays else DRAINING if drains else BATCH
    graph = run_passes(described, passes, observe)
    if streams and not plays:  # after the passes: what they refuse is said first
        _refuse_unbounded(described)
    check_key_coders(
        graph,
        Coders(graph, may_unpickle=may_unpickle),
        allow_non_deterministic_key_coders=allow_non_deterministic_key_coders,
    )
    return build(graph, streams=bool(plays))


def _refuse_unbounded(graph: Graph) -> None:
    for transform in graph.transforms.values():
        if not all(graph.pcollections[id_].is_bounded for id_ in transform.outputs.values()):
            raise OptionsError(
                "streaming",
                f"{transform.name} makes an unbounded collection, and streaming pipelines are not "
                "supported yet; without the option it runs as a batch until its sources end",
            )

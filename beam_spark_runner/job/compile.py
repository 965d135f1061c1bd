"""From the proto to the plan. START READING HERE."""

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.graph.passes import BATCH, DRAINING, Observer, ignore, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.coders import Coders, check_key_coders
from beam_spark_runner.portable.pipeline import from_proto


def compile_pipeline(
    pipeline: beam_runner_api_pb2.Pipeline,
    *,
    allow_non_deterministic_key_coders: bool = False,
    drains: bool = False,
    observe: Observer = ignore,
) -> Plan:
    """Compile a pipeline. Nothing has run, and nothing was opened, when this returns or raises.

    Args:
        pipeline: as an SDK wrote it; client-side optimisations (lifted combiners) are fine.
        allow_non_deterministic_key_coders: Beam's option of that name.
        drains: splittable DoFns truncate their restrictions before they process them.
        observe: sees the graph after each pass.

    Raises:
        PipelineRefusedError: with everything in it that this runner cannot run.
        InvalidPipelineError: it is not a legal proto.
    """
    graph = run_passes(from_proto(pipeline), DRAINING if drains else BATCH, observe)
    check_key_coders(
        graph,
        Coders(graph),
        allow_non_deterministic_key_coders=allow_non_deterministic_key_coders,
    )
    return build(graph)

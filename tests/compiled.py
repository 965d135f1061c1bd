"""Compiles protos of pipelines in their own environments, as SDKs make them."""

from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.job.prepare.compile import compile_graph
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import keep_code_together


def compile_pipeline(
    pipeline: beam_runner_api_pb2.Pipeline, *, apart: bool = False, **options: Any
) -> Plan:
    """Compile a pipeline; see ``compile_graph`` for the options."""
    graph = from_proto(pipeline)
    if apart:
        graph = keep_code_together(graph, apart=True)
    return compile_graph(graph, is_apart=apart, **options)

"""The LOOPBACK environments of a pipeline: those whose code runs in the process that built it."""

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2, endpoints_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.environment_facts import changed_environments


def has_loopback(graph: Graph) -> bool:
    """Whether a pipeline has LOOPBACK environments."""
    return any(
        environment.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK
        for environment in graph.environments.values()
    )


def with_pool(graph: Graph, url: str) -> Graph:
    """Replace LOOPBACK environments by EXTERNAL ones of a worker pool.

    Args:
        graph: The graph before all passes.
        url: The address of the pool, HOST:PORT; empty: there is none, since no code will run.
    """
    pool = beam_runner_api_pb2.ExternalPayload()
    if url:
        pool.endpoint.CopyFrom(endpoints_pb2.ApiServiceDescriptor(url=url))

    def serve(_: EnvironmentId, proto: beam_runner_api_pb2.Environment) -> None:
        if proto.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK:
            proto.urn, proto.payload = urns.ENVIRONMENT_EXTERNAL, pool.SerializeToString()

    return changed_environments(graph, serve)

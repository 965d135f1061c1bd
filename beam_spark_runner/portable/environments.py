"""Where the code of a pipeline runs, as its environments say."""

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.graph.model import Graph

REMOTE_URNS = frozenset({urns.ENVIRONMENT_PROCESS, urns.ENVIRONMENT_EXTERNAL})
"""Code runs in an SDK harness outside of the Spark worker, over the Fn API."""


def has_remote_code(graph: Graph) -> bool:
    """Whether some code runs in SDK harnesses, so that the runner may not know its coders."""
    return any(each.urn in REMOTE_URNS for each in graph.environments.values())


def environment_of(graph: Graph, id_: EnvironmentId | None) -> EnvironmentId | None:
    """Return where a stage runs whose transforms ask for ``id_``.

    A stage without transforms only carries rows on. Where code is remote, an SDK must do
    that, too: a group comes as an iterable of what the runner does not understand, and
    leaves as one element.
    """
    if id_ is not None:
        return id_
    remote = (each for each, found in graph.environments.items() if found.urn in REMOTE_URNS)
    return next(remote, None)


def coded_environment(graph: Graph, id_: EnvironmentId | None) -> bytes:
    """Return what starts the harness of a stage: an Environment proto without display data.

    Empty where the stage runs in the Spark worker.
    """
    if id_ is None or graph.environments[id_].urn not in REMOTE_URNS:
        return b""
    environment = beam_runner_api_pb2.Environment.FromString(graph.environments[id_].coded)
    environment.ClearField("display_data")
    environment.ClearField("resource_hints")
    return bytes(environment.SerializeToString(deterministic=True))

"""Graphs with a step in each of some environments."""

from apache_beam.portability.api import beam_runner_api_pb2 as pb

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import EnvironmentId, TransformId
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.portable.environment_facts import environment_of


def steps_in(**environments: pb.Environment) -> Graph:
    """Return a graph with a step in each environment, of the same name."""
    return Graph(
        transforms={
            TransformId(name): Transform(
                name=name, urn=urns.PAR_DO, environment=EnvironmentId(name)
            )
            for name in environments
        },
        pcollections={},
        coders={},
        windowings={},
        environments={
            EnvironmentId(name): environment_of(each) for name, each in environments.items()
        },
    )


def environments_in(graph: Graph) -> dict[str, pb.Environment]:
    """Return the Environment protos of a graph by their ids."""
    return {str(id_): pb.Environment.FromString(e.coded) for id_, e in graph.environments.items()}


def kinds(graph: Graph) -> dict[str, str]:
    """Return the kind of each environment by its id."""
    return {id_: each.urn.split(":")[2] for id_, each in environments_in(graph).items()}

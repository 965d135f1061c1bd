"""Facts about environments: where they run, and what their SDKs support."""

from collections.abc import Callable
from dataclasses import replace

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import SDK_VERSION_CAPABILITY_PREFIX

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_SDK_HARNESSES
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.graph.model import Environment, Graph, Transform
from beam_spark_runner.portable.payloads import has_maps_of_ours

_PYTHON = f"{SDK_VERSION_CAPABILITY_PREFIX}apache/beam_python"
_JAVA = "apache/beam_java"
_KEYS_OF_MULTIMAPS = [2, 69]


def has_remote_code(graph: Graph) -> bool:
    """Whether code runs in SDK harnesses: then all of it does, and none in the Python workers.

    All rows are then in the encoding of ``portable.wire``: the runner may not know their coders.
    """
    return graph.keeps_code_apart or any(
        environment.urn in IN_SDK_HARNESSES for environment in graph.environments.values()
    )


def coded_environment(graph: Graph, id_: EnvironmentId | None) -> bytes:
    """Return the Environment proto with which the SDK harness of a stage is started.

    It is empty if the stage runs in the Python worker.

    Raises:
        InvariantError: The stage would run in the Python worker, although all code of the pipeline
            runs in SDK harnesses.
    """
    if not has_remote_code(graph):
        return b""
    if id_ is None or graph.environments[id_].urn not in IN_SDK_HARNESSES:
        raise InvariantError(f"code of the environment {id_} would run in a Python worker")
    environment = beam_runner_api_pb2.Environment.FromString(graph.environments[id_].coded)
    environment.ClearField("display_data")
    environment.ClearField("resource_hints")
    return bytes(environment.SerializeToString(deterministic=True))


def environment_of(proto: beam_runner_api_pb2.Environment) -> Environment:
    """Return an environment as the graph has it."""
    return Environment(urn=proto.urn, coded=proto.SerializeToString(deterministic=True))


def changed_environments(
    graph: Graph, change: Callable[[EnvironmentId, beam_runner_api_pb2.Environment], object]
) -> Graph:
    """Return a graph in which each environment has been changed.

    Args:
        graph: The graph, which stays as it is.
        change: Changes the Environment proto of an id.
    """
    environments = {}
    for id_, environment in graph.environments.items():
        proto = beam_runner_api_pb2.Environment.FromString(environment.coded)
        change(id_, proto)
        environments[id_] = environment_of(proto)
    return replace(graph, environments=environments)


def can_do(graph: Graph, id_: EnvironmentId | None, capability: str) -> bool:
    """Whether the SDK of an environment has a capability; the runner itself has all.

    An SDK that declares no capabilities at all is assumed to have all.
    """
    if id_ is None:
        return True
    coded = graph.environments[id_].coded
    capabilities = beam_runner_api_pb2.Environment.FromString(coded).capabilities
    return not capabilities or capability in capabilities


def is_of_java(graph: Graph, id_: EnvironmentId) -> bool:
    """Whether the SDK of an environment is Java's."""
    coded = graph.environments[id_].coded
    return sdk_of(beam_runner_api_pb2.Environment.FromString(coded)).startswith(_JAVA)


def names_keys_of_multimaps(environment: beam_runner_api_pb2.Environment) -> bool:
    """Whether an SDK says of which key it requests MapState, SetState and MultimapState.

    Those of Java up to 2.68 leave the key out of these requests, and take the states of all keys of
    a bundle for one (``FnApiStateAccessor.createMultimapKeysUserStateKey``).
    """
    sdk, _, version = sdk_of(environment).rpartition(":")
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    return not sdk.startswith(_JAVA) or numbers >= _KEYS_OF_MULTIMAPS


def ends_with_its_siblings(environment: beam_runner_api_pb2.Environment) -> bool:
    """Whether all SDK harnesses of an environment can run no more bundles once one has ended.

    Those of Java that are threads of one process, such as a client's with LOOPBACK, share a pool of
    threads, which the first that ends shuts down.

    Source: Java ``FnHarness.main`` (2.65), which ends with ``executorService.shutdown()``;
    ``ExternalWorkerService`` gives all of them the same options, which hold this pool.
    """
    is_pool = environment.urn == urns.ENVIRONMENT_EXTERNAL
    return is_pool and sdk_of(environment).startswith(_JAVA)


def has_our_package(environment: beam_runner_api_pb2.Environment) -> bool:
    """Whether an environment is a Python process that this runner starts, with this package."""
    return bool(
        environment.urn == urns.ENVIRONMENT_PROCESS
        and not beam_runner_api_pb2.ProcessPayload.FromString(environment.payload).command
    )


def has_maps_in_bags(graph: Graph, transform: Transform) -> bool:
    """Whether the SDK harness of a transform has the maps of declarative steps in bags.

    It does unless it has this package, or the transform runs in the Python workers.
    """
    if transform.environment is None or not has_remote_code(graph):
        return False
    coded = graph.environments[transform.environment].coded
    is_ours = has_our_package(beam_runner_api_pb2.Environment.FromString(coded))
    return not is_ours and has_maps_of_ours(transform)


def may_be_stock(environment: beam_runner_api_pb2.Environment) -> bool:
    """Whether an environment may be an SDK as Beam ships it, without this package."""
    return environment.urn in IN_SDK_HARNESSES and not has_our_package(environment)


def sdk_of(environment: beam_runner_api_pb2.Environment) -> str:
    """Return the name and version of an environment's SDK, for messages.

    Example:
        "apache/beam_java17_sdk:2.65.0"

    Source: Java ``Environments.getJavaCapabilities``, and the same of Python and Go.
    """
    for capability in environment.capabilities:
        if capability.startswith(SDK_VERSION_CAPABILITY_PREFIX):
            return str(capability.removeprefix(SDK_VERSION_CAPABILITY_PREFIX))
    return "of unknown name"


def is_of_python(environment: beam_runner_api_pb2.Environment) -> bool:
    """Whether the SDK of an environment is Python's."""
    return environment.urn == urns.ENVIRONMENT_EMBEDDED_PYTHON or (
        python_version_of_beam(environment) is not None
    )


def python_version_of_beam(environment: beam_runner_api_pb2.Environment) -> str | None:
    """Return the Beam version of the Python SDK that made an environment; None: another SDK did.

    Source: ``apache_beam.transforms.environments.sdk_base_version_capability``.
    """
    for capability in environment.capabilities:
        if capability.startswith(_PYTHON):
            return str(capability.rpartition(":")[2])
    return None

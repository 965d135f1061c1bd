"""Decides where the code of a pipeline runs."""

from collections.abc import Iterator
from dataclasses import replace

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_PYTHON_WORKERS, IN_SDK_HARNESSES
from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    PipelineError,
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.core.ids import EnvironmentId, WindowingId
from beam_spark_runner.graph.model import Environment, Graph, Transform, Windowing
from beam_spark_runner.graph.resources import NO_RESOURCES, resources_of
from beam_spark_runner.portable.environment_facts import changed_environments, has_remote_code


def keep_code_together(graph: Graph, *, apart: bool = False) -> Graph:
    """Replace embedded environments by PROCESS ones where code must not run in the Python workers.

    It must not if other code of the pipeline runs in SDK harnesses, since all rows then have the
    coders that SDKs use (``portable.wire``), nor if an environment has dependencies, since all
    pipelines share the workers.

    Args:
        graph: The graph before all passes.
        apart: Whether no code of this pipeline may run in the workers.
    """
    ids = {transform.environment for transform in graph.transforms.values()} | {
        windowing.environment
        for windowing in graph.windowings.values()
        if not windowing.is_of_the_model
    }
    environments = [environment for id_, environment in graph.environments.items() if id_ in ids]
    are_embedded = all(environment.urn in IN_PYTHON_WORKERS for environment in environments)
    needs_files = any(
        beam_runner_api_pb2.Environment.FromString(environment.coded).dependencies
        for environment in environments
    )
    if are_embedded and not needs_files and not apart:
        return graph

    def move(_: EnvironmentId, proto: beam_runner_api_pb2.Environment) -> None:
        if proto.urn in IN_PYTHON_WORKERS:
            proto.urn = urns.ENVIRONMENT_PROCESS
            proto.payload = beam_runner_api_pb2.ProcessPayload().SerializeToString()

    return changed_environments(graph, move)


def merge_environments(graph: Graph) -> Graph:
    """Have each step and windowing name the first of the environments in which the same code runs.

    An SDK makes one more for each set of resource hints, and so does each expansion
    of a cross-language transform; that alone must not cut stages. What the hints ask for becomes
    part of the steps.
    """
    graph = _with_resources(graph)
    firsts: dict[tuple[object, ...], EnvironmentId] = {}
    replacements: dict[EnvironmentId | None, EnvironmentId] = {}
    for id_ in sorted(graph.environments):
        proto = beam_runner_api_pb2.Environment.FromString(graph.environments[id_].coded)
        packages = tuple(
            dependency.SerializeToString(deterministic=True) for dependency in proto.dependencies
        )
        replacements[id_] = firsts.setdefault((proto.urn, proto.payload, packages), id_)
    if len(firsts) == len(replacements):
        return graph
    return replace(
        graph,
        # One that is missing is reported with its step.
        transforms={
            id_: replace(
                transform,
                environment=replacements.get(transform.environment, transform.environment),
            )
            for id_, transform in graph.transforms.items()
        },
        windowings={
            id_: replace(
                windowing,
                environment=replacements.get(windowing.environment, windowing.environment),
            )
            for id_, windowing in graph.windowings.items()
        },
        environments={id_: graph.environments[id_] for id_ in firsts.values()},
    )


def _with_resources(graph: Graph) -> Graph:
    hints = {
        id_: dict(beam_runner_api_pb2.Environment.FromString(environment.coded).resource_hints)
        for id_, environment in graph.environments.items()
    }
    if not any(hints.values()):
        return graph
    return replace(
        graph,
        transforms={
            id_: replace(
                transform,
                resources=NO_RESOURCES
                if transform.environment is None
                else resources_of(transform.step, hints.get(transform.environment, {})),
            )
            for id_, transform in graph.transforms.items()
        },
    )


def place_code(graph: Graph, *, apart: bool = False) -> Graph:
    """Give an environment to the code that names none, and to the pipeline's coders.

    The WindowFn of a strategy that names no environment belongs to the SDK of the first step that
    makes, or else reads, a collection with these windows. Environments that only unused strategies
    name are dropped. If code has to be kept apart, a pipeline without any environment gets that
    of Python's SDK harness, which then knows the coders.

    Args:
        graph: The graph before all passes.
        apart: Whether no code of the pipeline may run in the Python workers.

    Returns:
        A graph of which ``has_remote_code`` and ``coded_environment`` say where each part runs.

    Raises:
        PipelineRefusedError: WindowFns have no environment in which the runner could run them;
            each problem names a step and the strategy.
    """
    readers = _steps_by_windowing(graph)
    windowings = {
        id_: replace(windowing, environment=_environment_of(graph, windowing, readers.get(id_, [])))
        for id_, windowing in graph.windowings.items()
    }
    ids = {transform.environment for transform in graph.transforms.values()}
    ids |= {windowing.environment for windowing in windowings.values()}
    environments = {
        id_: environment for id_, environment in graph.environments.items() if id_ in ids
    }
    if apart and not environments:
        environments = _of_python()
    result = replace(
        graph, windowings=windowings, environments=environments, keeps_code_apart=apart
    )
    problems = [
        problem
        for id_, steps in readers.items()
        for problem in _problems(result, id_, steps[0].name)
    ]
    if problems:
        raise PipelineRefusedError(problems)
    return result


def _steps_by_windowing(graph: Graph) -> dict[WindowingId, list[Transform]]:
    """Find the steps of each strategy: those that make collections first, then those that read."""
    steps: dict[WindowingId, list[Transform]] = {}
    transforms = graph.transforms.values()
    outputs = ((step, id_) for step in transforms for id_ in step.outputs.values())
    inputs = ((step, id_) for step in transforms for id_ in step.inputs.values())
    for step, id_ in (*outputs, *inputs):
        steps.setdefault(graph.pcollections[id_].windowing, []).append(step)
    return steps


def _environment_of(
    graph: Graph, windowing: Windowing, steps: list[Transform]
) -> EnvironmentId | None:
    if windowing.is_of_the_model or not steps:
        return None
    if windowing.environment is not None:
        return windowing.environment
    return next((step.environment for step in steps if step.environment is not None), None)


def _problems(graph: Graph, id_: WindowingId, step: str) -> Iterator[PipelineError]:
    windowing = graph.windowings[id_]
    if windowing.is_of_the_model:
        return
    window_fn = f"the WindowFn {windowing.window_fn_urn} of the windowing strategy {id_}"
    if windowing.environment is None:
        if has_remote_code(graph):
            yield InvalidPipelineError(f"{window_fn} has no environment to run in", step)
    elif windowing.environment not in graph.environments:
        yield InvalidPipelineError(
            f"{window_fn} runs in the environment {windowing.environment}, which is missing", step
        )
    elif (
        kind := graph.environments[windowing.environment].urn
    ) not in IN_PYTHON_WORKERS | IN_SDK_HARNESSES:
        yield UnsupportedFeatureError(f"the environment {kind} of {window_fn}", step)


def _of_python() -> dict[EnvironmentId, Environment]:
    proto = beam_runner_api_pb2.Environment(
        urn=urns.ENVIRONMENT_PROCESS,
        payload=beam_runner_api_pb2.ProcessPayload().SerializeToString(),
    )
    coded = proto.SerializeToString(deterministic=True)
    return {EnvironmentId("python"): Environment(urn=proto.urn, coded=coded)}

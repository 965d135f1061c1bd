"""Refuse unsupported features and invalid pipelines: one error lists all problems."""

from collections.abc import Callable, Iterator

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_PYTHON_WORKERS, IN_SDK_HARNESSES
from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    PipelineError,
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.graph.passes.mixed_windows import find_mix

WHOLE_PIPELINE = "the pipeline"

_ACCESS_PATTERNS = frozenset({urns.SIDE_INPUT_ITERABLE, urns.SIDE_INPUT_MULTIMAP})
_ENVIRONMENTS = IN_PYTHON_WORKERS | IN_SDK_HARNESSES
_COMPONENTS = {  # of coders that the passes take apart
    urns.CODER_KV: 2,
    urns.CODER_ITERABLE: 1,
    urns.CODER_STATE_BACKED_ITERABLE: 1,
    urns.CODER_LENGTH_PREFIX: 1,
    urns.CODER_TIMER: 2,
}
_GROUPING_URNS = frozenset({urns.GROUP_BY_KEY, urns.COMBINE_PER_KEY})

# By requirement: whether a transform has that feature. Then the checks of steps report it.
_EXPLAINED_BY: dict[str, Callable[[Transform], bool]] = {
    "beam:requirement:pardo:splittable_dofn:v1": lambda _: True,
    "beam:requirement:pardo:stateful:v1": lambda _: True,
    "beam:requirement:pardo:on_window_expiration:v1": lambda _: True,
    "beam:requirement:pardo:finalization:v1": lambda transform: transform.finalizes_bundles,
    "beam:requirement:pardo:stable_input:v1": lambda transform: transform.requires_stable_input,
    "beam:requirement:pardo:time_sorted_input:v1": lambda _: True,
}


def validate(graph: Graph) -> Graph:
    """Collect every reason why ``graph`` cannot run, and raise them in one error.

    Example:
        test_stream -> count(state), whose input has no keys   ==>   two problems

    Returns:
        ``graph`` itself.

    Raises:
        PipelineRefusedError: with an UnsupportedFeatureError or an
            InvalidPipelineError for each problem, each naming its step.
    """
    problems = [*_problems_of_the_pipeline(graph), *_problems_of_coders(graph)]
    for transform in graph.transforms.values():
        problems += _problems_of_the_step(graph, transform)
    if problems:
        # Each once: parts of one step may have the same problem.
        raise PipelineRefusedError([*{str(problem): problem for problem in problems}.values()])
    return graph


def _problems_of_the_pipeline(graph: Graph) -> Iterator[PipelineError]:
    for requirement in graph.requirements:
        explains = _EXPLAINED_BY.get(requirement, lambda _: False)
        if not any(map(explains, graph.transforms.values())):
            yield UnsupportedFeatureError(f"the requirement {requirement}", WHOLE_PIPELINE)


def _problems_of_coders(graph: Graph) -> Iterator[PipelineError]:
    for id_, coder in graph.coders.items():
        arity, count = _COMPONENTS.get(coder.urn), len(coder.components)
        if arity is not None and arity != count:
            yield InvalidPipelineError(
                f"{coder.urn} takes {arity} component(s), not {count}",
                f"the coder {id_}",
            )


def _problems_of_the_step(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    where = transform.step
    if transform.urn not in facts.RUNNER_URNS:
        if transform.urn not in facts.SDK_URNS:
            yield UnsupportedFeatureError(
                f"the transform {transform.urn}", where, facts.ALTERNATIVES.get(transform.urn, "")
            )
            return
        if transform.environment is None:
            if transform.urn == urns.READ:
                yield UnsupportedFeatureError(
                    "a read that the runner has to execute", where, facts.ALTERNATIVES[urns.READ]
                )
            else:
                yield InvalidPipelineError("it has no environment that could execute it", where)
        elif (kind := graph.environments[transform.environment].urn) not in _ENVIRONMENTS:
            yield UnsupportedFeatureError(
                f"its environment, {kind} (PROCESS, DOCKER, EXTERNAL and Python's EMBEDDED are; "
                "an expansion service may have an --environment_type, too),",
                where,
            )
        if len(transform.main_inputs) != 1:
            count = len(transform.main_inputs)
            yield InvalidPipelineError(f"it needs one main input, but has {count}", where)
            return
    yield from _problems_of_side_inputs(graph, transform)
    if transform.urn in _GROUPING_URNS:
        yield from _problems_of_grouping(graph, transform)
    if transform.urn == urns.FLATTEN:
        yield from _problems_of_flatten(graph, transform)
    if transform.is_keyed:
        yield from _problems_of_keyed_steps(graph, transform)


def _problems_of_side_inputs(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    for local_name, _, access_pattern in facts.side_inputs(transform):
        side_input = f"side input {local_name}"
        if access_pattern not in _ACCESS_PATTERNS:
            yield UnsupportedFeatureError(
                f"{side_input} with the access pattern {access_pattern}", transform.step
            )


def _problems_of_grouping(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    where = transform.step
    for collection in transform.inputs.values():
        coder = facts.coder(graph, collection)
        if coder.urn != urns.CODER_KV:
            yield InvalidPipelineError(
                f"its input must have a KV coder, but has {coder.urn}", where
            )
    if transform.urn == urns.COMBINE_PER_KEY and transform.accumulator_coder is None:
        yield InvalidPipelineError("it has no accumulator coder", where)


def _problems_of_keyed_steps(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    why = ", ".join(facts.states_and_timers(transform)) or "the order of event time"
    coder = facts.coder(graph, facts.main_input(transform))
    if coder.urn != urns.CODER_KV:
        yield InvalidPipelineError(
            f"it needs keys, for {why}, but the coder of its input is {coder.urn}", transform.step
        )
    if transform.restriction_coder is not None:
        # Beam's SDKs refuse it, too.
        yield UnsupportedFeatureError(f"a splittable DoFn with {why}", transform.step)


def _problems_of_flatten(graph: Graph, transform: Transform) -> Iterator[PipelineError]:
    mix = find_mix(graph, transform)
    if mix is None:
        return
    producer = facts.producers(graph)
    inputs = ", ".join(
        f"{text} of {graph.transforms[producer[collection]].step}"
        for text, collection in mix.inputs.items()
    )
    # The words of Beam's Java SDK. The Python SDK only warns.
    yield InvalidPipelineError(
        f"Inputs to Flatten had incompatible window windowFns: {inputs}; {mix.problem}. "
        "Give all of them the same WindowInto",
        transform.step,
    )

"""The step that truncates restrictions: it runs as a separate stage during a drain."""

from dataclasses import replace

from beam_spark_runner.graph.facts import producers
from beam_spark_runner.graph.passes.truncate_restrictions import truncate_restrictions
from beam_spark_runner.plan.model import Plan, Stage


def truncating_part(plan: Plan, stage: Stage) -> tuple[Plan, Stage]:
    """Return a stage that truncates the input restrictions of a stage with a splittable DoFn.

    Example:
        stage [Read/Process Format] : split -> lines
        ==>   stage [Read/TruncateRestriction] : split -> split_truncated

    Returns:
        The plan with truncating steps in its graph, and the stage, which runs one of them.
    """
    graph = truncate_restrictions(plan.graph)
    process, *_ = stage.transforms
    (truncated,) = graph.transforms[process].main_inputs.values()
    step = producers(graph)[truncated]
    part = replace(
        stage, transforms=(step,), outputs=(truncated,), is_splittable=False, stores=frozenset()
    )
    return replace(plan, graph=graph), part

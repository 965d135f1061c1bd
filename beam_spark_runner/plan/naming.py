"""Names of stages and lists of steps, for people."""

from collections.abc import Iterable

from beam_spark_runner.graph.model import FusedStage, Graph

_MAX_NAMES = 4


def stage_name(graph: Graph, stage: FusedStage) -> str:
    """Name a stage by the outermost step names of its transforms, in order.

    Example:
        Read/Split, Read/Process, Count/Precombine   ==>   Read + Count
    """
    if not stage.transforms:
        return f"pass on {graph.pcollections[stage.input].name}"
    labels = dict.fromkeys(
        graph.transforms[transform].name.partition("/")[0] for transform in stage.transforms
    )
    return _shortened(list(labels), " + ")


def step_list(names: Iterable[str]) -> str:
    """List the full names of some steps.

    Example:
        A/x, B/y, A/x   ==>   A/x, B/y
    """
    return _shortened(list(dict.fromkeys(names)), ", ")


def _shortened(names: list[str], separator: str) -> str:
    hidden = len(names) - _MAX_NAMES
    if hidden <= 1:  # hiding a single name saves nothing
        return separator.join(names)
    return separator.join(names[:_MAX_NAMES]) + f"{separator}{hidden} more"

"""Names of stages and lists of steps, for messages."""

from collections.abc import Iterable

from beam_spark_runner.graph.model import FusedStage, Graph, Transform

_MAX_NAMES = 4


def stage_name(graph: Graph, stage: FusedStage, producer: Transform | None) -> str:
    """Name a stage by the outermost names of its steps, in order.

    If that is a single name, inner names are added, since other stages may share it.

    Args:
        graph: The graph after ``fuse``.
        stage: A stage of that graph.
        producer: The step executed by the runner that makes the input of ``stage``, if one does.

    Example:
        Read, Score/Parse, Score/Sum   ==>   Read + Score
        Score/Parse, Score/Sum         ==>   Score/{Parse, Sum}
    """
    if not stage.transforms:
        return f"pass on {producer.step if producer else stage.input}"
    names = [graph.transforms[transform].step for transform in stage.transforms]
    labels = dict.fromkeys(name.partition("/")[0] for name in names)
    if len(labels) > 1:
        return _shortened(list(labels), " + ")
    inner = dict.fromkeys(name.rpartition("/")[2] for name in names)
    text = _shortened(list(inner), ", ")
    (label,) = labels
    if text == label:
        return label
    return f"{label}/{{{text}}}" if len(inner) > 1 else f"{label}/{text}"


def step_list(names: Iterable[str]) -> str:
    """List the names of some steps, each once.

    Example:
        A/x, B/y, A/x   ==>   A/x, B/y
    """
    return _shortened(list(dict.fromkeys(names)), ", ")


def _shortened(names: list[str], separator: str) -> str:
    hidden = len(names) - _MAX_NAMES
    if hidden <= 1:  # hiding a single name saves nothing
        return separator.join(names)
    return separator.join(names[:_MAX_NAMES]) + f"{separator}{hidden} more"

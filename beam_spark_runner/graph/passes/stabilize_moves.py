"""Give stable input to the step in which ``fileio.WriteToFiles`` gives files their names."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import MOVES_FILES
from beam_spark_runner.graph.model import Graph


def stabilize_moves(graph: Graph) -> Graph:
    """Have the files of a pane committed before they are renamed.

    Beam's Python SDK has no word for that. The names have the number of files in them. If an epoch
    wrote and renamed files, and were repeated with others, elements would be in files of both.

    Example:
        Write/ParDo(_MoveTempFilesIntoFinalDestinationFn): pardo(files)   ==>   the same, stable
    """
    return replace(
        graph,
        transforms={
            id_: replace(transform, requires_stable_input=True)
            if transform.urn == urns.PAR_DO and transform.name.endswith(MOVES_FILES)
            else transform
            for id_, transform in graph.transforms.items()
        },
    )

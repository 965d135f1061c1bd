"""Require stable input for the step in which ``fileio.WriteToFiles`` renames files."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import MOVES_FILES
from beam_spark_runner.graph.model import Graph


def stabilize_moves(graph: Graph) -> Graph:
    """Make the pipeline commit the files of a pane before it renames them.

    Beam's Python SDK cannot declare this. The final names include the number of files. If an epoch
    renamed files, and then ran again with other files, elements would be in files of both runs.

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

"""The passes, and the order in which they run."""

from collections.abc import Callable, Sequence

from beam_spark_runner.graph.model import Graph
from beam_spark_runner.graph.passes.await_side_inputs import await_side_inputs
from beam_spark_runner.graph.passes.expand_splittable import expand_splittable
from beam_spark_runner.graph.passes.fuse import fuse
from beam_spark_runner.graph.passes.insert_fusion_breaks import insert_fusion_breaks
from beam_spark_runner.graph.passes.lift_combiners import lift_combiners
from beam_spark_runner.graph.passes.recode_redistributed import recode_redistributed
from beam_spark_runner.graph.passes.refuse_unstreamable import refuse_unstreamable
from beam_spark_runner.graph.passes.stabilize_moves import stabilize_moves
from beam_spark_runner.graph.passes.truncate_restrictions import truncate_restrictions
from beam_spark_runner.graph.passes.validate import validate

__all__ = [
    "BATCH",
    "DRAINING",
    "STREAMING",
    "Observer",
    "Pass",
    "await_side_inputs",
    "expand_splittable",
    "fuse",
    "ignore",
    "insert_fusion_breaks",
    "lift_combiners",
    "recode_redistributed",
    "refuse_unstreamable",
    "run_passes",
    "stabilize_moves",
    "truncate_restrictions",
    "validate",
]

Pass = Callable[[Graph], Graph]
Observer = Callable[[str, Graph], None]

BATCH: tuple[Pass, ...] = (
    validate,
    lift_combiners,
    expand_splittable,
    recode_redistributed,
    insert_fusion_breaks,
    fuse,
)
"""The passes of a batch pipeline, from ``portable.pipeline`` to ``plan.build``."""

DRAINING: tuple[Pass, ...] = (
    validate,
    lift_combiners,
    expand_splittable,
    truncate_restrictions,
    recode_redistributed,
    insert_fusion_breaks,
    fuse,
)
"""The same for a batch pipeline whose restrictions are truncated, so that its sources end."""

STREAMING: tuple[Pass, ...] = (
    validate,
    refuse_unstreamable,
    stabilize_moves,
    lift_combiners,
    expand_splittable,
    await_side_inputs,
    recode_redistributed,
    insert_fusion_breaks,
    fuse,
)
"""The same for a pipeline that runs in epochs."""


def ignore(name: str, graph: Graph) -> None:
    """Observe nothing."""


def run_passes(graph: Graph, passes: Sequence[Pass], observe: Observer = ignore) -> Graph:
    """Run ``passes`` one after another; call ``observe`` with name and graph after each."""
    for run_pass in passes:
        graph = run_pass(graph)
        observe(run_pass.__name__, graph)
    return graph

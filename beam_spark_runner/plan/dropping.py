"""Finds the step whose metrics count the elements that a stage drops for lateness."""

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.graph.facts import producers
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Delivery, Plan, Stage


def dropping_step(plan: Plan, stage: Stage) -> TransformId | None:
    """Return the user's step in whose metrics the dropped elements of a stage are counted.

    This is the grouping whose output the stage reads; else the step with the side input for which
    the stage waits, or which it gathers; else the first step of the stage.

    Example:
        stage [Count/Wait] -> stage [Count(state, rates)]   ==>   Count, for both

    Returns:
        The id of the step; None: the stage has no step and no grouping.
    """
    graph = plan.graph
    destination = plan.destinations[inputs(plan)[stage.id]]
    if destination.delivery is Delivery.GROUP_BY_KEY:
        return producers(graph)[stage.input]
    sides = stage.side_inputs
    if destination.delivery is Delivery.SIDE_INPUT:
        sides = tuple(
            side
            for reader in plan.stages.values()
            for side in reader.side_inputs
            if side.destination == destination.id
        )
    if not sides:
        return next(iter(stage.transforms), None)
    return known_to_the_user(graph, sides[0].transform)


def known_to_the_user(graph: Graph, id_: TransformId) -> TransformId:
    """Return the step before which ``graph.passes.await_side_inputs`` inserted this one; or it."""
    step = graph.transforms[id_]
    if step.urn != urns.FLATTEN:
        return id_
    (waited,) = step.outputs.values()
    return next(
        id_ for id_, transform in graph.transforms.items() if waited in transform.inputs.values()
    )

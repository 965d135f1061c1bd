"""Finds side inputs for which steps wait until an unbounded collection ends."""

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.graph import facts
from beam_spark_runner.plan.model import Plan


def blocking_side_inputs(plan: Plan) -> list[str]:
    """Describe the side inputs of a streaming plan that are not ready before their input ends.

    These are unbounded collections in the global window whose trigger fires at the end of the
    window. Beam's model requires steps to wait for them, which is seldom what a user intends.

    Returns:
        A warning for each such collection, with the step that makes it and the steps that wait.
    """
    graph = plan.graph
    producer = facts.producers(graph)
    readers: dict[PCollectionId, dict[str, None]] = {}
    for transform in graph.transforms.values():
        if transform.urn == urns.FLATTEN:
            continue  # inserted before a step with side inputs: ``graph.passes.await_side_inputs``
        name = transform.name
        if transform.urn in facts.SDF_PART_URNS:
            name = name.rpartition("/")[0]
        for _, collection, _ in facts.side_inputs(transform):
            windowing = facts.windowing(graph, collection)
            if (
                not graph.pcollections[collection].is_bounded
                and windowing.window_fn_urn == urns.WINDOW_FN_GLOBAL
                and windowing.trigger_is_default
            ):
                readers.setdefault(collection, {})[name] = None
    return [
        f"{', '.join(names)}: elements wait until the side input from "
        f"{graph.transforms[producer[collection]].name} ends, because it is unbounded, in the "
        "global window, and its trigger fires only at the end; give it a trigger, such as "
        "Repeatedly(AfterCount(1)), or windows"
        for collection, names in readers.items()
    ]

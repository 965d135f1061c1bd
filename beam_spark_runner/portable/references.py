"""Checks that all that transforms refer to exists, and is of the right kind."""

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.coder_graphs import CoderGraphs
from beam_spark_runner.portable.payloads import read_payload
from beam_spark_runner.portable.wire import RUNNERS_CODERS


def check_references(graph: Graph) -> None:
    """Every id that a transform reaches must exist, so that later layers may index freely.

    No coder, whether a transform uses it or not, contains itself or is so large that later layers
    and Beam may not walk it as a tree.

    Raises:
        InvalidPipelineError: An id does not exist, or a coder is unsound; names the first transform
            that refers to it.
    """
    for id_ in graph.coders:
        if id_.startswith(RUNNERS_CODERS):
            raise InvalidPipelineError(f"ids of its coders begin with {RUNNERS_CODERS!r}", id_)
    checked = CoderGraphs(graph.coders)
    for transform in graph.transforms.values():
        environment = transform.environment
        if environment is not None and environment not in graph.environments:
            raise InvalidPipelineError(f"its environment {environment} is missing", transform.name)
        collections = [*transform.inputs.values(), *transform.outputs.values()]
        facts = read_payload(transform.urn, transform.payload, transform.name)
        coders = list(facts.coders)
        for collection in (graph.pcollections[id_] for id_ in collections):
            windowing = graph.windowings.get(collection.windowing)
            if windowing is None:
                raise InvalidPipelineError(
                    f"{collection.name} has no windowing strategy {collection.windowing}",
                    transform.name,
                )
            coders += (collection.coder, windowing.window_coder)
        checked.check(coders, transform.name)
        for id_ in facts.timer_coders:
            coder = graph.coders.get(id_)
            if coder is None or coder.urn != urns.CODER_TIMER:
                urn = "none" if coder is None else coder.urn
                raise InvalidPipelineError(
                    f"the coder of its timers has to be {urns.CODER_TIMER}, and is {urn}",
                    transform.name,
                )
    checked.check_unused()

"""Find Flattens of different WindowFns, and the step downstream that would get wrong results."""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Graph, Transform, Windowing

_GROUPING_URNS = frozenset({urns.GROUP_BY_KEY, urns.COMBINE_PER_KEY})


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedFlatten:
    """A Flatten of different WindowFns that cannot run."""

    inputs: Mapping[str, PCollectionId]  # by WindowFn as text: the first input that has it
    problem: str


def find_mix(graph: Graph, flatten: Transform) -> MixedFlatten | None:
    """Search downstream of a Flatten for the first step to which mixed windows matter.

    The mix ends where windows are assigned again; element-wise steps are not affected.
    A grouping would take the windows of one input for those of all. And all windows
    of a collection have one coder: global and fixed windows have none in common.

    Example:
        All: flatten(hourly, daily) -> all
        Format: pardo(all) -> lines             ==>   nothing
        Count: combine_per_key(all) -> counts   ==>   "Count groups them"

    Source: Java ``Flatten`` refuses any such mix; Python's only warns.
    """
    kinds: dict[Hashable, PCollectionId] = {}
    for collection in flatten.inputs.values():
        kinds.setdefault(_kind(graph, facts.windowing(graph, collection)), collection)
    if len(kinds) < 2:
        return None
    inputs = {
        facts.window_fn_text(facts.windowing(graph, collection)): collection
        for collection in kinds.values()
    }
    windowings = [facts.windowing(graph, collection) for collection in inputs.values()]
    if len({graph.coders[windowing.window_coder] for windowing in windowings}) > 1:
        return MixedFlatten(inputs=inputs, problem="they have no window coder in common")
    readers: defaultdict[PCollectionId, list[Transform]] = defaultdict(list)
    for transform in graph.transforms.values():
        for collection in dict.fromkeys(transform.inputs.values()):
            readers[collection].append(transform)
    downstream = list(flatten.outputs.values())
    for collection in downstream:  # the loop appends to this list
        for reader in readers[collection]:
            use = _use(reader, collection)
            if use is not None:
                return MixedFlatten(inputs=inputs, problem=f"{reader.step} {use}")
            if reader.urn != urns.ASSIGN_WINDOWS:
                downstream += [
                    output for output in reader.outputs.values() if output not in downstream
                ]
    return None


def _kind(graph: Graph, windowing: Windowing) -> Hashable:
    """Return what is equal for WindowFns whose windows may be mixed.

    Of WindowFns that only an SDK understands, the SDK decides it: two that it treats as compatible
    may have other payloads, as Java's anonymous classes do.
    """
    if windowing.window_fn_urn in urns.WINDOW_FNS:
        return facts.window_fn_text(windowing)
    coder = graph.coders[windowing.window_coder]
    return windowing.window_fn_urn, windowing.environment, coder


def _use(reader: Transform, collection: PCollectionId) -> str | None:
    if any(reader.inputs[local_name] == collection for local_name in reader.side_inputs):
        return "reads them as a side input"
    if reader.urn in _GROUPING_URNS:
        return "groups them"
    if reader.state_ids or reader.timer_families:
        return "keeps state by window"
    return None

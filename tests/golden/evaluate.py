"""Runs graphs and plans on a few elements with toy semantics, to compare what they mean.

Every transform is a deterministic function of its payload and its element, so
that two graphs mean the same if all collections that they share hold the same
multisets. Elements are ints; where the coder says so, KVs and tuples of them.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import (
    CoderId,
    DestinationId,
    PCollectionId,
    SegmentId,
    StageId,
    TransformId,
)
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.plan.model import Delivery, Plan, Segment

Element: TypeAlias = Any
Elements: TypeAlias = list[Element]
Data: TypeAlias = dict[PCollectionId, Elements]

_SOME = 97  # elements of a collection: few enough that keys and values meet again


def evaluate_graph(graph: Graph) -> dict[PCollectionId, Counter[Element]]:
    """Run a graph as it stands, transform by transform; ``stages`` are not looked at."""
    data: Data = {}
    for id_ in graph.transforms:
        run(graph, id_, data, lambda _, collection: data[collection])
    return {collection: Counter(elements) for collection, elements in data.items()}


def evaluate_stages(graph: Graph) -> dict[PCollectionId, Counter[Element]]:
    """Run a fused graph stage by stage, and add up what the stages make."""
    made: Data = {}
    runner = [t for t in graph.transforms.values() if t.urn in _RUNNER]
    for stage in graph.stages:
        _make_up_to(graph, runner, made)
        _run_stage(graph, stage.input, stage.transforms, made.get(stage.input, []), made)
    _make_up_to(graph, runner, made)
    return {collection: Counter(elements) for collection, elements in made.items()}


def evaluate_plan(plan: Plan) -> dict[PCollectionId, Counter[Element]]:
    """Run a plan as Spark would: segment by segment, rows only where the plan lets them through."""
    return _PlanRun(plan).run()


def run(
    graph: Graph,
    id_: TransformId,
    data: Data,
    side_input: Callable[[str, PCollectionId], Elements],
) -> None:
    """Run one transform on the collections in ``data``, and put its outputs there."""
    transform = graph.transforms[id_]
    outputs = list(transform.outputs.values())
    if transform.urn == urns.FLATTEN:
        flat = [x for collection in transform.main_inputs.values() for x in data[collection]]
        data.setdefault(outputs[0], []).extend(flat)
        return
    elements = [x for c in transform.main_inputs.values() for x in data[c]]
    sides = tuple(
        tuple(sorted(map(repr, side_input(name, transform.inputs[name]))))
        for name in transform.side_inputs
    )
    if transform.urn in _BY_URN:
        made = _BY_URN[transform.urn](transform, elements, sides)
        data.setdefault(outputs[0], []).extend(made)
        return
    for number, output in enumerate(outputs):
        shape = _shape(graph, graph.pcollections[output].coder)
        data.setdefault(output, []).extend(
            shape(value)
            for element in elements
            for value in _user_function(transform, number, element, sides)
        )


def _hash(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def _user_function(
    transform: Transform, output: int, element: Element, sides: object
) -> Iterable[int]:
    """Stand for user code: sometimes nothing, mostly one element, sometimes two."""
    if transform.urn == urns.PAR_DO and transform.restriction_coder is not None:
        parts: list[Element] = [(element, part) for part in _restrictions(transform, element)]
    elif transform.urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS:
        (element_and_part, _size) = element
        parts = [element_and_part]
    else:
        parts = [element]
    for part in parts:
        number = _hash(transform.payload, output, part, sides)
        for copy in range((number >> 8) % 16 and 1 + ((number >> 8) % 5 == 0)):
            yield _hash(number, copy)


def _restrictions(transform: Transform, element: Element) -> range:
    return range(_hash(transform.payload, element) % 3)


def _shape(graph: Graph, coder_id: CoderId) -> Callable[[int], Element]:
    coder = graph.coders[coder_id]
    if coder.urn == urns.CODER_KV:
        key, value = (_shape(graph, component) for component in coder.components)
        return lambda number: (key(number % 3), value(number // 3))
    if coder.urn == urns.CODER_ITERABLE:
        inner = _shape(graph, coder.components[0])
        return lambda number: (inner(number), inner(number // 3))
    return lambda number: number % _SOME


def _group(_: Transform, elements: Sequence[Element], __: object) -> Elements:
    groups: dict[Element, Elements] = {}
    for key, value in elements:
        groups.setdefault(key, []).append(value)
    return [(key, tuple(sorted(values, key=repr))) for key, values in groups.items()]


def _precombine(_: Transform, elements: Sequence[Element], __: object) -> Elements:
    """Fold nothing: legal, and the same whatever the bundles are."""
    return [(key, _hash(value)) for key, value in elements]


def _merge(_: Transform, elements: Sequence[Element], __: object) -> Elements:
    return [(key, sum(accumulators)) for key, accumulators in elements]


def _extract(transform: Transform, elements: Sequence[Element], _: object) -> Elements:
    return [(key, _hash(transform.payload, total) % _SOME) for key, total in elements]


def _combine(transform: Transform, elements: Sequence[Element], sides: object) -> Elements:
    folded = _precombine(transform, elements, sides)
    return _extract(transform, _merge(transform, _group(transform, folded, ()), ()), ())


def _pair(_: Transform, elements: Sequence[Element], __: object) -> Elements:
    return [(element, "all") for element in elements]


def _split(transform: Transform, elements: Sequence[Element], _: object) -> Elements:
    return [
        ((element, part), 1.0)
        for element, _ in elements
        for part in _restrictions(transform, element)
    ]


_RUNNER = {urns.IMPULSE, urns.GROUP_BY_KEY, urns.RESHUFFLE}
_BY_URN: dict[str, Callable[[Transform, Sequence[Element], object], Elements]] = {
    urns.IMPULSE: lambda *_: [0],
    urns.RESHUFFLE: lambda _, elements, __: list(elements),
    urns.GROUP_BY_KEY: _group,
    urns.COMBINE_PER_KEY: _combine,
    urns.COMBINE_PER_KEY_PRECOMBINE: _precombine,
    urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS: _merge,
    urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS: _extract,
    urns.SDF_PAIR_WITH_RESTRICTION: _pair,
    urns.SDF_SPLIT_AND_SIZE_RESTRICTIONS: _split,
    # Bounded restrictions stay as they are.
    urns.SDF_TRUNCATE_SIZED_RESTRICTIONS: lambda _, elements, __: list(elements),
}


def _make_up_to(graph: Graph, runner: list[Transform], made: Data) -> None:
    """Run the runner's own transforms again on all that there is by now."""
    for transform in runner:
        (output,) = transform.outputs.values()
        elements = [x for c in transform.inputs.values() for x in made.get(c, [])]
        made[output] = _BY_URN[transform.urn](transform, elements, ())


def _run_stage(
    graph: Graph,
    input_: PCollectionId,
    transforms: Sequence[TransformId],
    elements: Elements,
    made: Data,
    side_input: Callable[[TransformId, str, PCollectionId], Elements] | None = None,
) -> Data:
    local: Data = {input_: elements}
    for id_ in transforms:
        for local_name, collection in graph.transforms[id_].main_inputs.items():
            assert collection in local, f"{id_} reads {local_name}={collection}, not in its stage"

        def look_up(name: str, collection: PCollectionId, id_: TransformId = id_) -> Elements:
            return side_input(id_, name, collection) if side_input else made.get(collection, [])

        run(graph, id_, local, look_up)
    for collection, values in local.items():
        if collection != input_:
            made.setdefault(collection, []).extend(values)
    return local


class _PlanRun:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.made: Data = {}
        self.materialised: dict[DestinationId, dict[SegmentId, Elements]] = {}
        self.main = {d.stage: d for d in plan.destinations.values() if d.stage is not None}
        self.grouper = {
            output: transform
            for transform in plan.graph.transforms.values()
            if transform.urn == urns.GROUP_BY_KEY
            for output in transform.outputs.values()
        }

    def run(self) -> dict[PCollectionId, Counter[Element]]:
        ran: list[StageId] = []
        for number, segment in enumerate(self.plan.segments):
            assert segment.id == number
            assert segment.levels
            ran += self._run_segment(segment)
        assert sorted(ran) == sorted(self.plan.stages), "each stage runs once"
        return {collection: Counter(elements) for collection, elements in self.made.items()}

    def _run_segment(self, segment: Segment) -> list[StageId]:
        assert all(level.has_exchange for level in segment.levels[1:])
        rows: dict[DestinationId, Elements] = {d: [0] for d in segment.impulses}
        written_at: dict[DestinationId, int] = {}
        for read, sources in segment.reads.items():
            assert self.plan.destinations[read].delivery is not Delivery.SIDE_INPUT
            known = self.materialised.get(read, {})
            assert set(sources) == set(known), "reads names the segments that wrote"
            rows.setdefault(read, []).extend(x for part in known.values() for x in part)
        finished: set[DestinationId] = set()
        kept = self._passed_on(segment)
        for number, level in enumerate(segment.levels):
            for stage_id in level.stages:
                destination = self.main[stage_id]
                if destination.delivery is not Delivery.POINTWISE:
                    assert level.has_exchange
                    assert written_at.get(destination.id, -1) < number
                if destination.id in segment.impulses:
                    assert not level.has_exchange
                finished.add(destination.id)
                for leaving, elements in self._run_stage(segment, stage_id, rows).items():
                    for target in self.plan.consumers[leaving]:
                        assert target not in finished, "rows come after their reader has run"
                        if target in segment.writes:
                            parts = self.materialised.setdefault(target, {})
                            parts.setdefault(segment.id, []).extend(elements)
                            kept.add(target)
                        else:
                            rows.setdefault(target, []).extend(elements)
                            written_at[target] = number
        assert set(rows) <= finished, "rows that nothing reads"
        assert kept == set(segment.writes), "writes that nothing fills"
        assert all(segment.writes.values()), "each says why"
        return [stage for level in segment.levels for stage in level.stages]

    def _passed_on(self, segment: Segment) -> set[DestinationId]:
        """Pass on what later segments read: where a plan streams, each reads the previous one."""
        passed = set()
        for target in segment.writes if self.plan.is_streaming else ():
            parts = self.materialised.get(target, {})
            if segment.id - 1 in parts:
                parts[segment.id] = parts.pop(SegmentId(segment.id - 1))
                passed.add(target)
        return passed

    def _run_stage(
        self, segment: Segment, stage_id: StageId, rows: Mapping[DestinationId, Elements]
    ) -> Data:
        stage = self.plan.stages[stage_id]
        elements = rows.get(self.main[stage_id].id, [])
        if self.main[stage_id].delivery is Delivery.GROUP_BY_KEY:
            elements = _group(self.grouper[stage.input], elements, ())
        sides = {(side.transform, side.local_name): side.destination for side in stage.side_inputs}

        def side_input(id_: TransformId, name: str, collection: PCollectionId) -> Elements:
            destination = sides[id_, name]
            assert destination in segment.side_inputs
            assert self.plan.destinations[destination].arriving == collection
            parts = self.materialised.get(destination, {})
            assert all(number < segment.id for number in parts), "read while it is written"
            return [x for part in parts.values() for x in part]

        local = _run_stage(
            self.plan.graph, stage.input, stage.transforms, elements, self.made, side_input
        )
        return {collection: local[collection] for collection in stage.outputs}

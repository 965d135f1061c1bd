"""Converts the pipeline proto to a Graph of primitive transforms."""

import heapq
import json
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import (
    CoderId,
    EnvironmentId,
    PCollectionId,
    TransformId,
    WindowingId,
)
from beam_spark_runner.core.table_steps import WRITE_TABLE
from beam_spark_runner.graph.facts import ALTERNATIVES, TABLE_URNS
from beam_spark_runner.graph.model import (
    Coder,
    Graph,
    PCollection,
    Transform,
)
from beam_spark_runner.portable.alternatives import Environments, chosen_environments
from beam_spark_runner.portable.applied_steps import steps_of_parts
from beam_spark_runner.portable.environment_facts import environment_of
from beam_spark_runner.portable.payloads import COMBINE_URNS, PAR_DO_URNS, read_payload
from beam_spark_runner.portable.references import check_references
from beam_spark_runner.portable.row_fields import row_fields
from beam_spark_runner.portable.windowing import (
    fires_empty_when_closed,
    may_be_lifted,
    windowing_from_proto,
)

_RUNNER_EXECUTED = frozenset(
    {urns.IMPULSE, urns.FLATTEN, urns.GROUP_BY_KEY, urns.RESHUFFLE, urns.TEST_STREAM, *TABLE_URNS}
)
"""Transforms that need no SDK. Their environment, which Python's Flatten has, is dropped."""

_FULL_WINDOW = frozenset({urns.FULL_WINDOW_PARTITION, urns.FULL_WINDOW_PARTITION_BY_KEY})
_PAR_DOS = _FULL_WINDOW | {urns.DECLARATIVE_KEYED_PROCESS}
"""Composites whose payload is that of a ParDo, which runs in place of their parts."""

_KNOWN = (
    _RUNNER_EXECUTED
    | PAR_DO_URNS
    | COMBINE_URNS
    | {urns.ASSIGN_WINDOWS, urns.MAP_WINDOWS, *_PAR_DOS}
    | ALTERNATIVES.keys()
)
"""Leaves that are never dropped as pass-throughs."""

_NEVER_EXPANDED = _PAR_DOS | TABLE_URNS
_KEPT_WHOLE = frozenset({urns.COMBINE_PER_KEY, urns.RESHUFFLE}) | _NEVER_EXPANDED
"""Composites that become one Transform."""

_ONE_TO_ONE = frozenset(
    {urns.GROUP_BY_KEY, urns.RESHUFFLE, urns.COMBINE_PER_KEY, urns.ASSIGN_WINDOWS, WRITE_TABLE}
)


def from_proto(
    pipeline: beam_runner_api_pb2.Pipeline, *, expands_reshuffles: bool = False
) -> Graph:
    """Flatten a pipeline's composites and gather the facts that passes need.

    A leaf of the hierarchy becomes a Transform. A Reshuffle, a CombinePerKey without side
    inputs, and a read or write of a Spark table become one Transform each although they
    have parts, since the runner executes them better than their parts. A composite without
    parts, whose outputs are its inputs or made elsewhere, is dropped. A composite
    whose payload is that of a ParDo becomes this ParDo: its parts are for runners that do not know
    it.

    Example:
        Count[CombinePerKey[GroupByKey, Combine]] -> Write[…, Reshuffle[…], …]
        ==>   Count -> Write/… -> Write/Reshuffle -> Write/…

    Args:
        pipeline: The proto, as an SDK has made it.
        expands_reshuffles: Whether a Reshuffle is expanded like any other composite.

    Returns:
        A Graph whose transforms are in topological order; among transforms that are
        ready, the one the pipeline names first. It depends on the pipeline alone, not
        on the order of the proto's maps.

    Raises:
        InvalidPipelineError: A reference dangles, a field is missing or cannot be decoded, there
            is a cycle, or a coder is too large.

    Source: Beam QueryablePipeline.getPrimitiveTransformIds.
    """
    components = pipeline.components
    kept_whole = _KEPT_WHOLE - {urns.RESHUFFLE} if expands_reshuffles else _KEPT_WHOLE
    environments = chosen_environments(components)
    leaves = _without_pass_throughs(_leaves(pipeline, kept_whole, environments), components)
    steps = steps_of_parts(pipeline)
    transforms = {id_: _transform(id_, components, steps.get(id_, "")) for id_ in leaves}
    ordered = _in_topological_order(transforms)
    windowings = {
        WindowingId(id_): windowing_from_proto(id_, strategy, environments)
        for id_, strategy in sorted(components.windowing_strategies.items())
    }
    environment_ids = {transform.environment for transform in transforms.values()}
    environment_ids |= {windowing.environment for windowing in windowings.values()}
    graph = Graph(
        transforms=ordered,
        pcollections={
            id_: _pcollection(id_, components, transform.name)
            for transform in ordered.values()
            for id_ in (*transform.inputs.values(), *transform.outputs.values())
        },
        coders={CoderId(id_): _coder(components.coders[id_]) for id_ in sorted(components.coders)},
        windowings=windowings,
        environments={
            EnvironmentId(id_): environment_of(environments[id_])
            for id_ in sorted(environments)
            if id_ in environment_ids
        },
        requirements=tuple(sorted(pipeline.requirements)),
    )
    check_references(graph)
    return graph


def _leaves(
    pipeline: beam_runner_api_pb2.Pipeline,
    kept_whole: Container[str],
    environments: Environments,
) -> list[TransformId]:
    """Return the ids of the transforms to keep, in the order in which the pipeline names them.

    An explicit stack: composites may nest deeper than Python recurses.
    """
    transforms = pipeline.components.transforms
    leaves: list[TransformId] = []
    entered: dict[str, bool] = {}  # True while its parts are being visited
    stack = [(id_, "the pipeline") for id_ in reversed(pipeline.root_transform_ids)]
    while stack:
        id_, parent = stack.pop()
        if not parent:
            entered[id_] = False
            continue
        if id_ not in transforms:
            raise InvalidPipelineError(f"it names a transform that does not exist: {id_}", parent)
        proto = transforms[id_]
        name = proto.unique_name or id_
        if id_ in entered:
            if entered[id_]:
                raise InvalidPipelineError("this composite contains itself", name)
            continue
        if not proto.subtransforms or (
            proto.spec.urn in kept_whole
            and _may_be_kept_whole(proto, pipeline.components, environments)
        ):
            entered[id_] = False
            leaves.append(TransformId(id_))
            continue
        entered[id_] = True
        stack.append((id_, ""))
        stack.extend((part, name) for part in reversed(proto.subtransforms))
    return leaves


def _may_be_kept_whole(
    proto: beam_runner_api_pb2.PTransform,
    components: beam_runner_api_pb2.Components,
    environments: Environments,
) -> bool:
    if proto.spec.urn in _NEVER_EXPANDED:
        return True  # their parts are for other runners
    if len(proto.inputs) != 1 or len(proto.outputs) != 1:
        return False  # side inputs: its parts know how to read them
    if proto.spec.urn == urns.COMBINE_PER_KEY:
        return bool(proto.spec.payload) and combiner_may_be_lifted(proto, components, environments)
    return True


def combiner_may_be_lifted(
    combine: beam_runner_api_pb2.PTransform,
    components: beam_runner_api_pb2.Components,
    environments: Environments,
) -> bool:
    """Whether a CombinePerKey may combine before its grouping; see ``windowing.may_be_lifted``."""
    nowhere = beam_runner_api_pb2.Environment()
    environment = environments.get(combine.environment_id, nowhere)
    for id_ in combine.inputs.values():
        if id_ not in components.pcollections:
            continue
        collection = components.pcollections[id_]
        if collection.windowing_strategy_id in components.windowing_strategies:
            strategy = components.windowing_strategies[collection.windowing_strategy_id]
            is_bounded = collection.is_bounded != beam_runner_api_pb2.IsBounded.UNBOUNDED
            has_last_panes = fires_empty_when_closed(strategy, environments)
            if not may_be_lifted(
                strategy, environment, is_bounded=is_bounded, has_last_panes=has_last_panes
            ):
                return False
    return True


def _without_pass_throughs(
    leaves: Sequence[TransformId], components: beam_runner_api_pb2.Components
) -> list[TransformId]:
    """Drop leaves that make nothing: composites whose expansion returned what was there already.

    Python's ``Create`` has one (``MaybeReshuffle``), and every ``expand`` that only returns
    another step's collection makes one. A known primitive stays, even without outputs. An
    unknown leaf that makes a collection stays, too, so that validation refuses it.
    """
    protos = {id_: components.transforms[id_] for id_ in leaves}
    outputs = {
        collection
        for proto in protos.values()
        if proto.spec.urn in _KNOWN
        for collection in proto.outputs.values()
    }
    return [
        id_
        for id_, proto in protos.items()
        if proto.spec.urn in _KNOWN
        or not outputs.union(proto.inputs.values()).issuperset(proto.outputs.values())
    ]


def _transform(
    id_: TransformId,
    components: beam_runner_api_pb2.Components,
    part_of: str,
) -> Transform:
    proto = components.transforms[id_]
    name = proto.unique_name or id_
    urn = urns.PAR_DO if proto.spec.urn in _PAR_DOS else proto.spec.urn
    facts = read_payload(urn, proto.spec.payload, name)
    if urn in _ONE_TO_ONE and (len(proto.inputs) != 1 or len(proto.outputs) != 1):
        raise InvalidPipelineError(
            f"{urn} takes one input and has one output, not {len(proto.inputs)} and "
            f"{len(proto.outputs)}",
            name,
        )
    missing = sorted(set(facts.side_inputs) - set(proto.inputs))
    if missing:
        raise InvalidPipelineError(f"side inputs without a collection: {missing}", name)
    if urn in PAR_DO_URNS and len(proto.inputs) - len(facts.side_inputs) != 1:
        raise InvalidPipelineError("a ParDo has exactly one main input", name)
    return Transform(
        name=name,
        part_of=part_of,
        urn=urn,
        payload=proto.spec.payload,
        inputs={local: PCollectionId(proto.inputs[local]) for local in sorted(proto.inputs)},
        outputs={local: PCollectionId(proto.outputs[local]) for local in sorted(proto.outputs)},
        side_inputs=facts.side_inputs,
        environment=None if urn in _RUNNER_EXECUTED else _environment_of(id_, components),
        accumulator_coder=facts.accumulator_coder,
        restriction_coder=facts.restriction_coder,
        element_coder=facts.element_coder,
        state_ids=facts.state_ids,
        timer_families=facts.timer_families,
        declared=_declared_in(proto, name),
        requires_stable_input=facts.requires_stable_input,
        requires_time_sorted_input=facts.requires_time_sorted_input,
        finalizes_bundles=facts.finalizes_bundles,
        needs_all_input=proto.spec.urn in _FULL_WINDOW,
        takes_partition=proto.spec.urn == urns.FULL_WINDOW_PARTITION,
    )


def _declared_in(proto: beam_runner_api_pb2.PTransform, name: str) -> tuple[str, ...]:
    """Return the annotation of a declarative step; empty: it has none."""
    if urns.DECLARED not in proto.annotations:  # a protobuf map adds missing keys
        return ()
    try:
        declared = json.loads(proto.annotations[urns.DECLARED])
    except ValueError as error:
        raise InvalidPipelineError(f"its annotation {urns.DECLARED} is no JSON", name) from error
    return tuple(sorted(map(str, declared)))


def _environment_of(
    id_: TransformId, components: beam_runner_api_pb2.Components
) -> EnvironmentId | None:
    """Return a transform's environment; of a composite, that of the first part that has one."""
    pending, seen = [str(id_)], set()
    while pending:
        current = pending.pop()
        if current in seen or current not in components.transforms:
            continue
        seen.add(current)
        proto = components.transforms[current]
        if proto.environment_id:
            return EnvironmentId(proto.environment_id)  # a missing one is reported with its step
        pending.extend(reversed(proto.subtransforms))
    return None


def _in_topological_order(
    transforms: Mapping[TransformId, Transform],
) -> dict[TransformId, Transform]:
    """Sort producers before consumers; side inputs count.

    Raises:
        InvalidPipelineError: a collection has no producer or two, or there is a cycle.
    """
    ids = list(transforms)
    rank = {id_: position for position, id_ in enumerate(ids)}
    producer: dict[PCollectionId, TransformId] = {}
    for id_, transform in transforms.items():
        for collection in transform.outputs.values():
            if collection in producer:
                other = transforms[producer[collection]].name
                raise InvalidPipelineError(
                    f"it makes {collection}, as does {other}", transform.name
                )
            producer[collection] = id_

    consumers: defaultdict[TransformId, list[TransformId]] = defaultdict(list)
    waiting_for: dict[TransformId, int] = {}
    for id_, transform in transforms.items():
        inputs = set(transform.inputs.values())
        for collection in inputs:
            if collection not in producer:
                raise InvalidPipelineError(f"nothing makes its input {collection}", transform.name)
        producers = {producer[collection] for collection in inputs}
        waiting_for[id_] = len(producers)
        for other_id in producers:
            consumers[other_id].append(id_)

    ready = [rank[id_] for id_, count in waiting_for.items() if not count]
    heapq.heapify(ready)
    ordered: dict[TransformId, Transform] = {}
    while ready:
        id_ = ids[heapq.heappop(ready)]
        ordered[id_] = transforms[id_]
        for consumer in consumers[id_]:
            waiting_for[consumer] -= 1
            if not waiting_for[consumer]:
                heapq.heappush(ready, rank[consumer])
    for id_, transform in transforms.items():
        if id_ not in ordered:
            raise InvalidPipelineError("it consumes, through others, what it makes", transform.name)
    return ordered


def _pcollection(
    id_: PCollectionId, components: beam_runner_api_pb2.Components, consumer: str
) -> PCollection:
    if id_ not in components.pcollections:
        raise InvalidPipelineError(f"it names a collection that does not exist: {id_}", consumer)
    proto = components.pcollections[id_]
    return PCollection(
        name=proto.unique_name or id_,
        coder=CoderId(proto.coder_id),
        windowing=WindowingId(proto.windowing_strategy_id),
        is_bounded=proto.is_bounded != beam_runner_api_pb2.IsBounded.UNBOUNDED,
    )


def _coder(proto: beam_runner_api_pb2.Coder) -> Coder:
    return Coder(
        urn=proto.spec.urn,
        payload=proto.spec.payload,
        components=tuple(CoderId(id_) for id_ in proto.component_coder_ids),
        fields=row_fields(proto.spec.payload) if proto.spec.urn == urns.CODER_ROW else "",
    )

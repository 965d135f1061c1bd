"""A stage of the plan as the ProcessBundleDescriptor that an SDK worker runs."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import CoderId, EnvironmentId, PCollectionId, StageId, TransformId
from beam_spark_runner.graph.facts import main_input, sized_restrictions
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.plan.model import Delivery, Plan, Stage
from beam_spark_runner.portable.environment_facts import can_do, coded_environment, has_remote_code
from beam_spark_runner.portable.payloads import read_payload
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import WireCoders, add_coders

SOURCE_URN = "beam_spark_runner:source:v1"
SINK_URN = "beam_spark_runner:sink:v1"
"""The URNs of sources and sinks of embedded stages. A remote SDK needs Beam's own data URNs."""


def describe(
    plan: Plan,
    stage_id: StageId,
    *,
    part: Stage | None = None,
    source_urn: str = SOURCE_URN,
    sink_urn: str = SINK_URN,
) -> StageDescription:
    """Describe one stage, and nothing of the pipeline that it does not use.

    The source feeds ``stage.input``; each output collection gets one sink, however
    many destinations read it. Both carry a RemoteGrpcPort whose coder is that of the
    windowed values which cross the edge. Source and sinks are the only transforms
    that the pipeline does not know.

    If any code runs in SDK harnesses, rows of all stages are in the encoding of
    ``portable.wire``, which the runner need not understand. The stages of such an environment have
    Beam's own sources and sinks, whose ports get their addresses on the executor.

    Example:
        stage [parse count] : lines -> counts
        ==>   source-3 -> parse -> count -> sink-counts

    Args:
        plan: The plan of the pipeline.
        stage_id: The id of the stage.
        part: A part of the stage that is described in its place, with the same input.
        source_urn: The URN by which an SDK worker in this process builds the source, with a
            RemoteGrpcPort as payload.
        sink_urn: The URN of sinks, likewise.

    Source: proto ProcessBundleDescriptor; Beam ProcessBundleDescriptors.fromExecutableStage.
    """
    stage, graph = part or plan.stages[stage_id], plan.graph
    environment = coded_environment(graph, stage.environment)
    if environment:
        source_urn, sink_urn = urns.GRPC_SOURCE, urns.GRPC_SINK
    builder = _Builder(graph, stage)
    source = builder.fresh_id(f"source-{stage_id}")
    arriving = _arriving(plan, stage)
    if environment and stage.is_splittable:
        builder.let_residuals_be_read(stage.input)
    if environment and any(_is_stateful(graph.transforms[id_]) for id_ in stage.transforms):
        builder.let_keys_be_read(stage.input)
    builder.add_edge(
        source,
        source_urn,
        builder.windowed_coder(
            stage.input, builder.on_edge(stage.input, arriving.coder, arriving.shape)
        ),
        outputs={"out": stage.input},
    )
    sinks: dict[TransformId, PCollectionId] = {}
    for collection in stage.outputs:
        sink = builder.fresh_id(f"sink-{collection}")
        sinks[sink] = collection
        coder = builder.on_edge(collection, graph.pcollections[collection].coder)
        builder.add_edge(
            sink, sink_urn, builder.windowed_coder(collection, coder), inputs={"in": collection}
        )

    descriptor = builder.descriptor
    descriptor.id = f"stage-{stage_id}"
    return StageDescription(
        coded_descriptor=descriptor.SerializeToString(deterministic=True),
        source=source,
        sinks=sinks,
        step_names={id_: graph.transforms[id_].name for id_ in stage.transforms},
        coded_environment=environment,
        has_states=any(graph.transforms[id_].state_ids for id_ in stage.transforms),
        has_timers=any(graph.transforms[id_].timer_families for id_ in stage.transforms),
        is_splittable=stage.is_splittable,
    )


def _is_stateful(transform: Transform) -> bool:
    return bool(transform.state_ids or transform.timer_families)


_Shape = Literal["element", "group", "played"]
"""An element of an SDK; a KV of key and values, which the runner makes; one of a TestStream."""


class _Arriving(NamedTuple):
    """The rows that a stage reads: the kind of their content, and the SDK's coder for it."""

    shape: _Shape
    coder: CoderId


def _arriving(plan: Plan, stage: Stage) -> _Arriving:
    """Return what the rows contain that a stage reads.

    A Reshuffle may have other coders upstream than downstream; a grouping
    makes the KV with its iterable before the source; elements of a TestStream have
    their own encoding.
    """
    played = {dest for segment in plan.segments for dest in segment.test_streams}
    if any(plan.destinations[dest].stage == stage.id for dest in played):
        for transform in plan.graph.transforms.values():
            if transform.element_coder is not None and stage.input in transform.outputs.values():
                return _Arriving("played", transform.element_coder)
    collections = {
        stage.input if destination.delivery is Delivery.GROUP_BY_KEY else destination.arriving
        for destination in plan.destinations.values()
        if destination.stage == stage.id
    }
    coders = {plan.graph.pcollections[collection].coder for collection in collections}
    if len(coders) > 1:
        raise InvariantError(f"stage {stage.id} gets rows of several coders: {sorted(coders)}")
    is_grouped = any(
        destination.delivery is Delivery.GROUP_BY_KEY
        for destination in plan.destinations.values()
        if destination.stage == stage.id
    )
    coder = coders.pop() if coders else plan.graph.pcollections[stage.input].coder
    return _Arriving("group" if is_grouped else "element", coder)


class _Builder:
    """Fills a descriptor; all that an added component refers to is added, too."""

    def __init__(self, graph: Graph, stage: Stage) -> None:
        self.graph = graph
        self.descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
        self._wire = WireCoders(graph, self.descriptor.coders) if has_remote_code(graph) else None
        self._sized = sized_restrictions(graph)
        self._present = _collections_inside(graph, stage)
        self._stage = stage
        self._environment = stage.environment or ""
        self._reads_groups_in_pages = can_do(
            graph, stage.environment, urns.CODER_STATE_BACKED_ITERABLE
        )
        if stage.environment is not None:
            self._add_environment(stage.environment)
        for id_ in stage.transforms:
            self._add_transform(id_, graph.transforms[id_])

    def fresh_id(self, base: str) -> TransformId:
        """Return ``base``, with a suffix if a step of the pipeline has that id."""
        while base in self.descriptor.transforms:
            base += "'"
        return TransformId(base)

    def add_edge(
        self,
        id_: TransformId,
        urn: str,
        coder: CoderId,
        inputs: Mapping[str, PCollectionId] | None = None,
        outputs: Mapping[str, PCollectionId] | None = None,
    ) -> None:
        """Add a source or a sink."""
        port = beam_fn_api_pb2.RemoteGrpcPort(coder_id=coder)
        self.descriptor.transforms[id_].CopyFrom(
            beam_runner_api_pb2.PTransform(
                unique_name=id_,
                spec=beam_runner_api_pb2.FunctionSpec(
                    urn=urn, payload=port.SerializeToString(deterministic=True)
                ),
                inputs=inputs or {},
                outputs=outputs or {},
                environment_id=self._environment,
            )
        )
        for collection in (*(inputs or {}).values(), *(outputs or {}).values()):
            self._add_collection(collection, collection)

    def let_residuals_be_read(self, collection: PCollectionId) -> None:
        """Make the SDK encode residuals of an input in the same way as the input.

        An SDK encodes them by the coder of the collection: by that of its elements, or, if windows
        are encoded with their end in front, by that of windowed values.
        """
        coder = self.on_edge(collection, self.graph.pcollections[collection].coder)
        if self._window_on_edge(collection) != self._window(collection):
            coder = self.windowed_coder(collection, coder)
        self.descriptor.pcollections[collection].coder_id = coder

    def let_keys_be_read(self, collection: PCollectionId) -> None:
        """Make the SDK encode keys in state requests as the runner encodes them.

        An SDK encodes them by the coder of the main input of the stateful step.

        Source: Beam ``ProcessBundleDescriptors.lengthPrefixKeyCoder``.
        """
        coder = self.graph.pcollections[collection].coder
        if self._wire is not None and self.graph.coders[coder].urn == urns.CODER_KV:
            self.descriptor.pcollections[collection].coder_id = self._wire.keyed(coder)

    def on_edge(
        self, collection: PCollectionId, element: CoderId, shape: _Shape = "element"
    ) -> CoderId:
        """Return the coder of a collection's elements on edges to and from the stage.

        Args:
            collection: The id of the collection.
            element: The SDK's coder of the elements.
            shape: The kind of elements.
        """
        if self._wire is None:
            return element
        if shape == "group":
            return self._wire.grouped(element, in_pages=self._reads_groups_in_pages)
        if shape == "played":
            return self._wire.whole(element)
        if collection in self._sized:
            return self._wire.sized(element)
        return self._wire.element(element)

    def windowed_coder(self, collection: PCollectionId, element: CoderId) -> CoderId:
        """Add the coder of windowed values of ``element`` in the windows of ``collection``."""
        window = self._window_on_edge(collection)
        self._add_coders([element, window])
        id_ = CoderId(f"windowed({element},{window})")
        self.descriptor.coders[id_].CopyFrom(
            beam_runner_api_pb2.Coder(
                spec=beam_runner_api_pb2.FunctionSpec(urn=urns.CODER_WINDOWED_VALUE),
                component_coder_ids=[element, window],
            )
        )
        return id_

    def _window(self, collection: PCollectionId) -> CoderId:
        return self.graph.windowings[self.graph.pcollections[collection].windowing].window_coder

    def _window_on_edge(self, collection: PCollectionId) -> CoderId:
        window = self._window(collection)
        return window if self._wire is None else self._wire.window(window)

    def _add_environment(self, id_: EnvironmentId) -> None:
        """Add an environment without its dependencies, which only the start of a worker needs."""
        environment = beam_runner_api_pb2.Environment.FromString(self.graph.environments[id_].coded)
        environment.ClearField("dependencies")
        environment.ClearField("display_data")
        self.descriptor.environments[id_].CopyFrom(environment)

    def _add_transform(self, id_: TransformId, transform: Transform) -> None:
        inputs = dict(transform.inputs)
        if transform.urn == urns.FLATTEN:
            inputs = {
                name: collection
                for name, collection in inputs.items()
                if collection in self._present
            }
        for name, collection in inputs.items():
            # A worker may take every input of a transform for a main input (Python's does for
            # the parts of a splittable DoFn), and would feed a collection of this stage that is
            # also a side input twice. Workers request side inputs by their local names only.
            is_read_aside = name in transform.side_inputs and collection in self._present
            alias = PCollectionId(f"{collection}@side") if is_read_aside else collection
            inputs[name] = alias
            # The rows of a side input are encoded as on the edge out of their stage.
            is_side = name in transform.side_inputs
            self._add_collection(alias, collection, is_on_edge=is_side)
        for collection in transform.outputs.values():
            self._add_collection(collection, collection)
        self._add_coders(read_payload(transform.urn, transform.payload, transform.name).coders)
        payload = transform.payload
        if self._wire is not None and _is_stateful(transform):
            key, window = self._key_and_window_coders(transform)
            payload = _on_wire(
                payload, self._wire, key=key, window=window, environment=transform.environment
            )
        self.descriptor.transforms[id_].CopyFrom(
            beam_runner_api_pb2.PTransform(
                unique_name=transform.name,
                spec=beam_runner_api_pb2.FunctionSpec(urn=transform.urn, payload=payload),
                inputs=inputs,
                outputs=transform.outputs,
                environment_id=self._environment,
            )
        )

    def _key_and_window_coders(self, transform: Transform) -> tuple[CoderId | None, CoderId]:
        """Return the coders of the keys and of the windows of a keyed step's elements."""
        collection = main_input(transform)
        coder = self.graph.coders[self.graph.pcollections[collection].coder]
        key = coder.components[0] if coder.urn == urns.CODER_KV else None
        return key, self._window(collection)

    def _add_collection(
        self, id_: PCollectionId, facts_of: PCollectionId, *, is_on_edge: bool = False
    ) -> None:
        if id_ in self.descriptor.pcollections:
            return
        collection = self.graph.pcollections[facts_of]
        coder = collection.coder
        if is_on_edge:
            coder = self.on_edge(facts_of, coder)
        elif self._wire is not None:
            coder = self._wire.inside(coder, self._stage.environment)
        bounded = beam_runner_api_pb2.IsBounded
        self.descriptor.pcollections[id_].CopyFrom(
            beam_runner_api_pb2.PCollection(
                unique_name=collection.name,
                coder_id=coder,
                windowing_strategy_id=collection.windowing,
                is_bounded=bounded.BOUNDED if collection.is_bounded else bounded.UNBOUNDED,
            )
        )
        windowing = self.graph.windowings[collection.windowing]
        if collection.windowing not in self.descriptor.windowing_strategies:
            self.descriptor.windowing_strategies[collection.windowing].ParseFromString(
                windowing.coded
            )
        self._add_coders([coder, windowing.window_coder])

    def _add_coders(self, ids: Iterable[CoderId]) -> None:
        add_coders(self.graph, self.descriptor.coders, ids)


def _on_wire(
    payload: bytes,
    wire: WireCoders,
    *,
    key: CoderId | None,
    window: CoderId,
    environment: EnvironmentId | None,
) -> bytes:
    """Give a stateful ParDo coders by which the runner can read its timers, and count values.

    The Python SDK may derive the coder of timers from a side input
    (``ParDo._get_key_and_window_coder``), so that key and window are those of the main input here.

    Args:
        payload: The payload of the ParDo.
        wire: Makes coders for edges.
        key: The coder of the main input's keys; None: it is not a KV coder, and the payload's is
            used.
        window: The coder of the main input's windows.
        environment: The environment of the DoFn.
    """
    par_do = beam_runner_api_pb2.ParDoPayload.FromString(payload)
    for family in par_do.timer_family_specs.values():
        family.timer_family_coder_id = wire.timers(
            CoderId(family.timer_family_coder_id), key=key, window=window
        )
    for state in par_do.state_specs.values():
        if state.HasField("multimap_spec"):
            spec = state.multimap_spec
            spec.value_coder_id = wire.values(CoderId(spec.value_coder_id), environment)
    return bytes(par_do.SerializeToString(deterministic=True))


def _collections_inside(graph: Graph, stage: Stage) -> frozenset[PCollectionId]:
    """Return the collections whose elements pass through the stage."""
    outputs = (graph.transforms[id_].outputs.values() for id_ in stage.transforms)
    return frozenset({stage.input}.union(*outputs))

"""Wires the stages of a fused graph by destinations: what a plan has, but for its segments."""

from collections.abc import Sequence
from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import (
    DestinationId,
    EnvironmentId,
    PCollectionId,
    StageId,
    TransformId,
)
from beam_spark_runner.core.table_steps import WRITE_TABLE
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import FusedStage, Graph, Transform
from beam_spark_runner.plan.layout import Edges
from beam_spark_runner.plan.model import (
    Delivery,
    Destination,
    SideInput,
    Stage,
)
from beam_spark_runner.plan.naming import stage_name
from beam_spark_runner.plan.table_write_order import TableWrites


class Wiring:
    """Stages, and the destinations between them."""

    def __init__(self, graph: Graph, *, is_streaming: bool) -> None:
        self.graph = graph
        self.is_streaming = is_streaming
        self.stages: dict[StageId, Stage] = {}
        self.destinations: dict[DestinationId, Destination] = {}
        self.consumers: dict[PCollectionId, list[DestinationId]] = {}
        self.main: dict[StageId, DestinationId] = {}
        self.fed: dict[DestinationId, TransformId] = {}  # by the driver, for a step
        self.table_writes = TableWrites()
        self.producers: dict[PCollectionId, list[StageId]] = {}
        self.readers: dict[DestinationId, dict[str, None]] = {}  # steps with that side input
        self._steps = facts.users_steps(graph)
        self._side: dict[tuple[PCollectionId, str], DestinationId] = {}
        self._made_by_runner = {
            collection: id_
            for id_, transform in graph.transforms.items()
            if transform.urn in facts.ROOT_URNS
            for collection in transform.outputs.values()
        }
        self._of_test_streams = {
            collection
            for collection, id_ in self._made_by_runner.items()
            if graph.transforms[id_].urn == urns.TEST_STREAM
        }
        for number, fused in enumerate(graph.stages):
            self._add_stage(StageId(number), fused)
        for id_, transform in graph.transforms.items():
            if transform.urn == WRITE_TABLE and is_streaming:
                self._add_table(id_, transform)
            elif transform.urn == WRITE_TABLE:
                self._add_write(id_, transform)

    def edges(self) -> Edges:
        producers = self.producers
        edges = Edges(len(self.stages))
        gathered = {id_ for id_, dest in self.destinations.items() if dest.stage is None}
        for id_, stage in self.stages.items():
            if stage.is_stable and not stage.stores:  # else it waits in the shard
                edges.is_stable.add(id_)
            destination = self.destinations[self.main[id_]]
            is_fed = destination.id in self.fed
            edges.main.append(() if is_fed else tuple(producers.get(destination.arriving, ())))
            edges.has_exchange.append(destination.delivery is not Delivery.POINTWISE)
            edges.side.append(
                tuple(
                    producer
                    for side in dict.fromkeys(side.destination for side in stage.side_inputs)
                    if side in gathered
                    for producer in producers.get(self.destinations[side].arriving, ())
                )
            )
        fed = {stage: self.fed[dest] for stage, dest in self.main.items() if dest in self.fed}
        self.table_writes.count(edges, fed)
        return edges

    def _add_write(self, id_: TransformId, transform: Transform) -> None:
        (arriving,) = transform.inputs.values()
        destination = self._add_destination(
            delivery=Delivery.TABLE, arriving=arriving, stage=None, name=transform.name
        )
        self.table_writes.arriving[id_] = destination
        self.table_writes.producers[id_] = tuple(self.producers.get(arriving, ()))
        self.consumers.setdefault(arriving, []).append(destination)

    def _add_table(self, id_: TransformId, transform: Transform) -> None:
        """Add a stage that stores the rows of a table, until their epoch is committed."""
        (arriving,) = transform.inputs.values()
        stage = StageId(len(self.stages))
        self.main[stage] = self._add_destination(
            delivery=Delivery.POINTWISE, arriving=arriving, stage=stage, name=transform.name
        )
        self.consumers.setdefault(arriving, []).append(self.main[stage])
        self.stages[stage] = Stage(
            id=stage,
            name=f"rows of {transform.step}",
            transforms=(),
            input=arriving,
            outputs=(),
            # No user code runs, but the elements are in the encoding of this environment.
            environment=self._environment_of(arriving),
            table_write=id_,
        )

    def add_views(self) -> None:
        """Add a stage for each side input, which gathers it while its readers run."""
        for id_ in self._side.values():
            destination, stage = self.destinations[id_], StageId(len(self.stages))
            self.destinations[id_] = replace(destination, stage=stage)
            self.main[stage] = id_
            self.stages[stage] = Stage(
                id=stage,
                name=f"side input of {self._steps.get(destination.name, destination.name)}",
                transforms=(),
                input=destination.arriving,
                outputs=(),
                # No user code runs, but the elements are in the encoding of this environment.
                environment=self._environment_of(destination.arriving),
            )

    def _environment_of(self, collection: PCollectionId) -> EnvironmentId | None:
        producers = self.producers.get(collection, ())
        environments = (self.stages[producer].environment for producer in producers)
        return next(environments, next(iter(self.graph.environments), None))

    def _add_stage(self, id_: StageId, fused: FusedStage) -> None:
        self.main[id_] = self._main_destination(id_, fused)
        side_inputs = []
        for transform_id in fused.transforms:
            transform = self.graph.transforms[transform_id]
            for local_name, collection, access_pattern in facts.side_inputs(transform):
                destination = self._side_destination(transform, collection, access_pattern)
                self.readers.setdefault(destination, {})[transform.step] = None
                side_inputs.append(
                    SideInput(
                        transform=transform_id, local_name=local_name, destination=destination
                    )
                )
        for collection in fused.outputs:
            self.producers.setdefault(collection, []).append(id_)
        self.stages[id_] = Stage(
            id=id_,
            name=stage_name(self.graph, fused, self._producer(fused.input)),
            transforms=fused.transforms,
            input=fused.input,
            outputs=fused.outputs,
            environment=fused.environment,
            side_inputs=tuple(side_inputs),
            is_splittable=any(map(self._is_splittable, fused.transforms[:1])),
            is_keyed=any(self.graph.transforms[step].is_keyed for step in fused.transforms),
            is_stable=self._is_stable(fused.transforms),
            takes_partition=self._takes_partition(fused),
        )

    def _takes_partition(self, fused: FusedStage) -> bool:
        return any(self.graph.transforms[id_].takes_partition for id_ in fused.transforms)

    def _producer(self, collection: PCollectionId) -> Transform | None:
        id_ = self._made_by_runner.get(collection)
        return None if id_ is None else self.graph.transforms[id_]

    def _is_splittable(self, id_: TransformId) -> bool:
        return self.graph.transforms[id_].urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS

    def _main_destination(self, id_: StageId, fused: FusedStage) -> DestinationId:
        # A *carrier* is a stage without transforms that passes its input on. Stable input comes
        # from one, since groups might be read again in another order; so does time-sorted input.
        root = self.graph.transforms[fused.transforms[0]] if fused.transforms else None
        # So do a TestStream's elements, whose keys the runner does not know before.
        is_carried = root is not None and (
            root.requires_stable_input
            or root.requires_time_sorted_input
            or (root.is_keyed and fused.input in self._of_test_streams)
        )
        producer = None if is_carried else self._producer(fused.input)
        arriving, delivery = fused.input, Delivery.POINTWISE
        step = root or producer
        is_fed = producer is not None and producer.urn in facts.FED_URNS
        if producer is not None and not is_fed:
            step = producer
            (arriving,) = producer.inputs.values()
            is_grouping = producer.urn == urns.GROUP_BY_KEY
            delivery = Delivery.GROUP_BY_KEY if is_grouping else Delivery.REDISTRIBUTE
        if root and root.urn == urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS:
            delivery = Delivery.REDISTRIBUTE_BY_SIZE
        if root and root.is_keyed and delivery is not Delivery.GROUP_BY_KEY:
            delivery, step = Delivery.BY_KEY, root
        destination = self._add_destination(
            delivery=delivery,
            arriving=arriving,
            stage=id_,
            name=step.name if step else self.graph.pcollections[arriving].name,
            is_time_sorted=root is not None and root.requires_time_sorted_input,
            is_partition=delivery is Delivery.POINTWISE and self._takes_partition(fused),
        )
        if producer is not None and is_fed:
            # A stage that passes the impulse on must not feed its siblings.
            self.fed[destination] = self._made_by_runner[fused.input]
        else:
            self.consumers.setdefault(arriving, []).append(destination)
        return destination

    def _is_stable(self, transforms: Sequence[TransformId]) -> bool:
        return any(self.graph.transforms[id_].requires_stable_input for id_ in transforms[:1])

    def _side_destination(
        self, reader: Transform, collection: PCollectionId, access_pattern: str
    ) -> DestinationId:
        destination = self._side.get((collection, access_pattern))
        if destination is None:
            destination = self._side[collection, access_pattern] = self._add_destination(
                delivery=Delivery.SIDE_INPUT,
                arriving=collection,
                stage=None,
                name=reader.name,
                access_pattern=access_pattern,
            )
            self.consumers.setdefault(collection, []).append(destination)
        return destination

    def _add_destination(
        self,
        *,
        delivery: Delivery,
        arriving: PCollectionId,
        stage: StageId | None,
        name: str,
        access_pattern: str = "",
        is_time_sorted: bool = False,
        is_partition: bool = False,
    ) -> DestinationId:
        id_ = DestinationId(len(self.destinations) + 1)  # 0 is reserved for control rows
        self.destinations[id_] = Destination(
            id=id_,
            delivery=delivery,
            arriving=arriving,
            stage=stage,
            name=name,
            timestamp_combiner=facts.windowing(self.graph, arriving).timestamp_combiner,
            access_pattern=access_pattern,
            is_time_sorted=is_time_sorted,
            is_partition=is_partition,
        )
        return id_

"""Pipelines as protos, and graphs cut into stages by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from beam_spark_runner.core.ids import (
    DestinationId,
    EnvironmentId,
    PCollectionId,
    StageId,
    TransformId,
)
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.model import Delivery, Destination, Plan, Stage


class ProtoOnly(PipelineRunner):  # type: ignore[misc]
    """Keeps the proto that any portable runner would be given."""

    def default_environment(self, options: PipelineOptions) -> Any:
        return EmbeddedPythonEnvironment.default()

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> None:
        self.proto = pipeline


def proto_of(build: Callable[[beam.Pipeline], object], *flags: str) -> Any:
    runner = ProtoOnly()
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))
    build(pipeline)
    pipeline.run()
    return runner.proto


def named(graph: Graph, name: str) -> TransformId:
    (id_,) = [id_ for id_, transform in graph.transforms.items() if transform.name == name]
    return id_


def output_of(graph: Graph, name: str, local: str | None = None) -> PCollectionId:
    outputs = graph.transforms[named(graph, name)].outputs
    return outputs[local] if local else next(iter(outputs.values()))


def one_stage(
    graph: Graph,
    names: Sequence[str],
    *,
    input_: PCollectionId,
    outputs: Sequence[PCollectionId] = (),
    delivery: Delivery = Delivery.POINTWISE,
    arriving: PCollectionId | None = None,
) -> Plan:
    """A plan of stage 0 alone, as far as ``describe`` looks at it."""
    environments = {graph.transforms[named(graph, name)].environment for name in names} - {None}
    environment: EnvironmentId | None = next(iter(environments), None)
    stage = Stage(
        id=StageId(0),
        name="stage",
        transforms=tuple(named(graph, name) for name in names),
        input=input_,
        outputs=tuple(outputs),
        environment=environment,
    )
    destination = Destination(
        id=DestinationId(1),
        delivery=delivery,
        arriving=arriving or input_,
        stage=StageId(0),
        name="edge",
    )
    return Plan(
        graph=graph,
        stages={stage.id: stage},
        destinations={destination.id: destination},
        consumers={},
        segments=(),
    )

"""Each kind of step runs from its stage's descriptor."""

import dataclasses
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId, PCollectionId, StageId
from beam_spark_runner.graph.model import Coder, Graph, PCollection, Transform
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import (
    describe,
)
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable import edges
from tests.unit.portable.described import globally, to_run, values, windowed
from tests.unit.portable.graphs import Stateful
from tests.unit.portable.pipelines import named, one_stage, output_of, proto_of


def combined(p: beam.Pipeline) -> None:
    p | beam.Create([("a", 1)]) | "sum" >> beam.CombinePerKey(beam.combiners.CountCombineFn())


def test_the_parts_of_a_lifted_combine_run() -> None:
    graph = from_proto(proto_of(combined))
    id_ = named(graph, "sum")
    (arriving,) = graph.transforms[id_].inputs.values()
    accumulators, grouped_ = PCollectionId("accumulators"), PCollectionId("grouped")
    graph = with_accumulators(graph, id_, arriving, accumulators, grouped_)

    def parts(urn: str, input_: PCollectionId, output: PCollectionId) -> Graph:
        part = dataclasses.replace(
            graph.transforms[id_], urn=urn, inputs={"in": input_}, outputs={"out": output}
        )
        return dataclasses.replace(graph, transforms={id_: part})

    out = output_of(graph, "sum")
    before = one_stage(
        parts(urns.COMBINE_PER_KEY_PRECOMBINE, arriving, accumulators),
        ["sum"],
        input_=arriving,
        outputs=[accumulators],
    )
    found = edges.run(to_run(before), globally(("a", 1), ("b", 5), ("a", 2)))[accumulators]
    assert sorted(values(found)) == [("a", 2), ("b", 1)]
    merge = one_stage(
        parts(urns.COMBINE_PER_KEY_MERGE_ACCUMULATORS, grouped_, accumulators),
        ["sum"],
        input_=grouped_,
        outputs=[accumulators],
        delivery=Delivery.GROUP_BY_KEY,
        arriving=accumulators,
    )
    found = edges.run(to_run(merge), globally(("a", [3, 4])))[accumulators]
    assert values(found) == [("a", 7)]
    extract = one_stage(
        parts(urns.COMBINE_PER_KEY_EXTRACT_OUTPUTS, accumulators, out),
        ["sum"],
        input_=accumulators,
        outputs=[out],
    )
    assert values(edges.run(to_run(extract), globally(("a", 7)))[out]) == [("a", 7)]


def with_accumulators(
    graph: Graph,
    id_: Any,
    arriving: PCollectionId,
    accumulators: PCollectionId,
    grouped_: PCollectionId,
) -> Graph:
    """Add the collections that lifting makes: KV<key, accumulator> and the same grouped."""
    accumulator = graph.transforms[id_].accumulator_coder
    assert accumulator is not None
    key = graph.coders[graph.pcollections[arriving].coder].components[0]
    pair, many, group = CoderId("pair"), CoderId("many"), CoderId("group")
    windowing = graph.pcollections[arriving].windowing
    return dataclasses.replace(
        graph,
        coders={
            **graph.coders,
            pair: Coder(urn=urns.CODER_KV, components=(key, accumulator)),
            many: Coder(urn=urns.CODER_ITERABLE, components=(accumulator,)),
            group: Coder(urn=urns.CODER_KV, components=(key, many)),
        },
        pcollections={
            **graph.pcollections,
            accumulators: PCollection(name="accumulators", coder=pair, windowing=windowing),
            grouped_: PCollection(name="grouped", coder=group, windowing=windowing),
        },
    )


def stateful(p: beam.Pipeline) -> None:
    p | beam.Create([("a", b"")]) | "step" >> beam.ParDo(Stateful())


def side_inputs(p: beam.Pipeline) -> None:
    views = [
        beam.pvalue.AsDict(p | "c" >> beam.Create([(1, 2)])),
        beam.pvalue.AsMultiMap(p | "d" >> beam.Create([(1, 2)])),
    ]
    p | beam.Create([1]) | "step" >> beam.Map(lambda x, *_: x, *views)


@pytest.mark.parametrize("build", [stateful, side_inputs, windowed])
def test_each_kind_of_step_builds(build: Any) -> None:
    graph = from_proto(proto_of(build))
    step: Transform = graph.transforms[named(graph, "step")]
    (main,) = step.main_inputs.values()
    plan = one_stage(graph, ["step"], input_=main, outputs=list(step.outputs.values()))
    processor = edges.processor_for(to_run(plan))
    assert named(graph, "step") in processor.ops


def test_the_coders_of_state_and_timers_come_along() -> None:
    graph = from_proto(proto_of(stateful))
    step = graph.transforms[named(graph, "step")]
    (main,) = step.main_inputs.values()
    plan = one_stage(graph, ["step"], input_=main)
    descriptor = describe(plan, StageId(0)).descriptor("fn-api:1")
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.payload)
    assert payload.state_specs["bag"].bag_spec.element_coder_id in descriptor.coders
    assert payload.state_specs["sum"].combining_spec.accumulator_coder_id in descriptor.coders
    assert payload.timer_family_specs["ts-timer"].timer_family_coder_id in descriptor.coders
    assert descriptor.timer_api_service_descriptor.url == "fn-api:1"

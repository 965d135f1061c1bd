import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import CoderId, DestinationId, PCollectionId, StageId
from beam_spark_runner.graph.model import Coder, Graph, PCollection, Transform
from beam_spark_runner.plan.model import Delivery, Plan
from beam_spark_runner.portable.descriptor import (
    SINK_URN,
    SOURCE_URN,
    StageDescription,
    describe,
)
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable import edges
from tests.unit.portable.pipelines import named, one_stage, output_of, proto_of


def globally(*values: Any) -> list[WindowedValue]:
    return [WindowedValue(value, MIN_TIMESTAMP, [GlobalWindow()]) for value in values]


def to_run(plan: Plan) -> StageDescription:
    return describe(plan, StageId(0), source_urn=edges.SOURCE_URN, sink_urn=edges.SINK_URN)


def values(results: Sequence[WindowedValue]) -> list[Any]:
    return [each.value for each in results]


def split_and_pair(p: beam.Pipeline) -> None:
    pairs = (
        p
        | beam.Impulse()
        | "split" >> beam.FlatMap(lambda _: ["a", "b"])
        | "pair" >> beam.Map(lambda x: (x, 1)).with_output_types(tuple[str, int])
    )
    pairs | "other" >> beam.WindowInto(FixedWindows(10)) | "end" >> beam.Map(lambda x: {"x": x})


def the_plan(names: Sequence[str] = ("split", "pair"), **kwargs: Any) -> Plan:
    graph = from_proto(proto_of(split_and_pair))
    kwargs.setdefault("outputs", [output_of(graph, names[-1])])
    return one_stage(graph, names, input_=output_of(graph, "Impulse"), **kwargs)


def test_a_stage_runs_in_beams_bundle_processor() -> None:
    plan = the_plan()
    (out,) = plan.stages[StageId(0)].outputs
    assert values(edges.run(to_run(plan), globally(b""))[out]) == [("a", 1), ("b", 1)]


def test_names_and_edges() -> None:
    plan = the_plan()
    graph, (out,) = plan.graph, plan.stages[StageId(0)].outputs
    description = describe(plan, StageId(0))
    assert description.source == "source-0"
    assert description.sinks == {f"sink-{out}": out}
    assert description.step_names == {
        named(graph, "split"): "split",
        named(graph, "pair"): "pair",
    }
    descriptor = description.descriptor()
    assert set(descriptor.transforms) == {
        "source-0",
        f"sink-{out}",
        named(graph, "split"),
        named(graph, "pair"),
    }
    assert descriptor.transforms["source-0"].spec.urn == SOURCE_URN
    assert descriptor.transforms[f"sink-{out}"].spec.urn == SINK_URN
    assert list(descriptor.transforms["source-0"].outputs.values()) == [output_of(graph, "Impulse")]
    assert list(descriptor.transforms[f"sink-{out}"].inputs.values()) == [out]


def test_it_holds_only_what_the_stage_uses() -> None:
    plan = the_plan(["split"])
    descriptor = describe(plan, StageId(0)).descriptor()
    assert set(descriptor.pcollections) == {
        output_of(plan.graph, "Impulse"),
        output_of(plan.graph, "split"),
    }
    assert len(descriptor.windowing_strategies) == 1
    used = {
        *(each.coder_id for each in descriptor.pcollections.values()),
        *(each.window_coder_id for each in descriptor.windowing_strategies.values()),
    }
    for transform in descriptor.transforms.values():
        if transform.spec.urn in (SOURCE_URN, SINK_URN):
            used.add(beam_fn_api_pb2.RemoteGrpcPort.FromString(transform.spec.payload).coder_id)
    pending = list(used)
    while pending:
        components = descriptor.coders[pending.pop()].component_coder_ids
        used.update(components)
        pending.extend(components)
    assert set(descriptor.coders) == used


def test_the_environment_comes_without_its_dependencies() -> None:
    proto = proto_of(split_and_pair)
    (environment,) = proto.components.environments.values()
    environment.dependencies.add(type_urn="beam:artifact:type:file:v1")
    graph = from_proto(proto)
    plan = one_stage(graph, ["split"], input_=output_of(graph, "Impulse"))
    ((id_, found),) = describe(plan, StageId(0)).descriptor().environments.items()
    assert id_ == graph.transforms[named(graph, "split")].environment
    assert list(found.capabilities) == list(environment.capabilities)
    assert not found.dependencies


def test_it_is_small_and_pickles() -> None:
    description = describe(the_plan(), StageId(0))
    assert pickle.loads(pickle.dumps(description)) == description
    assert description.coded_descriptor == describe(the_plan(), StageId(0)).coded_descriptor


def test_a_worker_over_grpc_gets_beams_edges_and_urls() -> None:
    description = describe(
        the_plan(),
        StageId(0),
        source_urn="beam:runner:source:v1",
        sink_urn="beam:runner:sink:v1",
    )
    descriptor = description.descriptor("fn-api:1")
    assert descriptor.state_api_service_descriptor.url == "fn-api:1"
    assert not descriptor.HasField("timer_api_service_descriptor")  # there are no timers
    for id_ in (description.source, *description.sinks):
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(descriptor.transforms[id_].spec.payload)
        assert port.api_service_descriptor.url == "fn-api:1"


def test_a_stage_without_transforms_carries_its_input_on() -> None:
    graph = from_proto(proto_of(split_and_pair))
    pairs = output_of(graph, "pair")
    plan = one_stage(graph, [], input_=pairs, outputs=[pairs])
    assert values(edges.run(to_run(plan), globally(("a", 1)))[pairs]) == [("a", 1)]


def test_windows_cross_the_edges() -> None:
    graph = from_proto(proto_of(split_and_pair))
    windowed = output_of(graph, "other")
    plan = one_stage(graph, ["other"], input_=output_of(graph, "pair"), outputs=[windowed])
    (found,) = edges.run(to_run(plan), [WindowedValue(("a", 1), 12, [GlobalWindow()])])[windowed]
    assert found.windows == (IntervalWindow(10, 20),)


def test_several_outputs_have_a_sink_each() -> None:
    plan = the_plan(["split", "pair"])
    graph = plan.graph
    outputs = [output_of(graph, "split"), output_of(graph, "pair"), output_of(graph, "Impulse")]
    plan = one_stage(graph, ["split", "pair"], input_=output_of(graph, "Impulse"), outputs=outputs)
    results = edges.run(to_run(plan), globally(b""))
    assert [values(results[id_]) for id_ in outputs] == [
        ["a", "b"],
        [("a", 1), ("b", 1)],
        [b""],
    ]


def test_ids_of_the_users_are_not_overwritten() -> None:
    plan = the_plan()
    graph, stage = plan.graph, plan.stages[StageId(0)]
    first, second = stage.transforms
    renamed = {
        (id_ if id_ != first else type(first)("source-0")): transform
        for id_, transform in graph.transforms.items()
    }
    plan = dataclasses.replace(
        plan,
        graph=dataclasses.replace(graph, transforms=renamed),
        stages={stage.id: dataclasses.replace(stage, transforms=(type(first)("source-0"), second))},
    )
    description = to_run(plan)
    assert description.source == "source-0'"
    assert values(edges.run(description, globally(b""))[stage.outputs[0]]) == [("a", 1), ("b", 1)]


# Flatten


def flattened(p: beam.Pipeline) -> None:
    start = p | beam.Impulse()
    left = start | "left" >> beam.Map(lambda _: 1)
    right = start | "right" >> beam.Map(lambda _: 2)
    (left, right, left) | "flat" >> beam.Flatten() | "end" >> beam.Map(lambda x: x * 10)


def test_a_flatten_takes_the_inputs_that_exist_in_the_stage() -> None:
    graph = from_proto(proto_of(flattened))
    out = output_of(graph, "end")
    names = ["left", "flat", "end"]
    plan = one_stage(graph, names, input_=output_of(graph, "Impulse"), outputs=[out])
    # "left" twice, since the Flatten names it twice; "right" is another stage's.
    assert values(edges.run(to_run(plan), globally(b""))[out]) == [10, 10]


def test_a_flatten_of_the_stages_input() -> None:
    graph = from_proto(proto_of(flattened))
    out = output_of(graph, "end")
    right = output_of(graph, "right")
    plan = one_stage(graph, ["flat", "end"], input_=right, outputs=[out])
    assert values(edges.run(to_run(plan), globally(2))[out]) == [20]


# What arrives


def grouped(p: beam.Pipeline) -> None:
    (
        p
        | beam.Create([("a", 1)])
        | "group" >> beam.GroupByKey()
        | "total" >> beam.MapTuple(lambda k, vs: (k, sum(vs)))
    )


def test_a_grouping_hands_the_kv_with_its_iterable_to_the_source() -> None:
    graph = from_proto(proto_of(grouped))
    (arriving,) = graph.transforms[named(graph, "group")].inputs.values()
    after, out = output_of(graph, "group"), output_of(graph, "total")
    plan = one_stage(
        graph,
        ["total"],
        input_=after,
        outputs=[out],
        delivery=Delivery.GROUP_BY_KEY,
        arriving=arriving,
    )
    assert source_element_coder(describe(plan, StageId(0))) == graph.pcollections[after].coder
    assert values(edges.run(to_run(plan), globally(("a", [1, 2])))[out]) == [("a", 3)]


def source_element_coder(description: StageDescription) -> str:
    descriptor = description.descriptor()
    payload = descriptor.transforms[description.source].spec.payload
    port = beam_fn_api_pb2.RemoteGrpcPort.FromString(payload)
    return str(descriptor.coders[port.coder_id].component_coder_ids[0])


@pytest.mark.parametrize("delivery", [Delivery.REDISTRIBUTE, Delivery.REDISTRIBUTE_BY_SIZE])
def test_a_redistribution_arrives_in_the_coder_of_its_producers(delivery: Delivery) -> None:
    graph = from_proto(proto_of(split_and_pair))
    arriving, after = output_of(graph, "pair"), output_of(graph, "end")
    assert graph.pcollections[arriving].coder != graph.pcollections[after].coder
    plan = one_stage(graph, [], input_=after, delivery=delivery, arriving=arriving)
    assert source_element_coder(describe(plan, StageId(0))) == graph.pcollections[arriving].coder


def test_rows_of_two_coders_for_one_stage_are_our_bug() -> None:
    plan = the_plan()
    (edge,) = plan.destinations.values()
    other = dataclasses.replace(edge, id=DestinationId(2), arriving=output_of(plan.graph, "end"))
    plan = dataclasses.replace(plan, destinations={edge.id: edge, other.id: other})
    with pytest.raises(InvariantError, match="several coders"):
        describe(plan, StageId(0))


def test_sinks_and_source_carry_windowed_value_coders() -> None:
    processor = edges.processor_for(to_run(the_plan()))
    for id_ in ("source-0", next(id_ for id_ in processor.ops if id_.startswith("sink"))):
        assert isinstance(processor.ops[id_].coder, WindowedValueCoder)


# Side inputs


def reads_itself(p: beam.Pipeline) -> None:
    numbers = p | beam.Create([1, 2])
    numbers | "read" >> beam.Map(lambda x, others: x, beam.pvalue.AsIter(numbers))


def test_a_collection_that_is_main_and_side_input_flows_once() -> None:
    graph = from_proto(proto_of(reads_itself))
    read = graph.transforms[named(graph, "read")]
    (main,) = read.main_inputs.values()
    assert list(read.inputs.values()) == [main, main]
    plan = one_stage(graph, ["read"], input_=main)
    descriptor = describe(plan, StageId(0)).descriptor()
    inputs = descriptor.transforms[named(graph, "read")].inputs
    assert inputs["python_side_input0"] != main
    aside, along = descriptor.pcollections[inputs["python_side_input0"]], main
    assert aside == descriptor.pcollections[along]
    edges.processor_for(to_run(plan))


# Each kind of step builds


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
    from tests.unit.portable.test_portable_pipeline import Stateful

    p | beam.Create([("a", b"")]) | "step" >> beam.ParDo(Stateful())


def side_inputs(p: beam.Pipeline) -> None:
    views = [
        beam.pvalue.AsDict(p | "c" >> beam.Create([(1, 2)])),
        beam.pvalue.AsMultiMap(p | "d" >> beam.Create([(1, 2)])),
    ]
    p | beam.Create([1]) | "step" >> beam.Map(lambda x, *_: x, *views)


def windowed(p: beam.Pipeline) -> None:
    p | beam.Create([1]) | "step" >> beam.WindowInto(FixedWindows(1))


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

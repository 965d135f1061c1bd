import dataclasses
import pickle

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.portable.descriptor import (
    SINK_URN,
    SOURCE_URN,
    describe,
)
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable import edges
from tests.unit.portable.described import (
    globally,
    split_and_pair,
    the_plan,
    to_run,
    values,
)
from tests.unit.portable.pipelines import named, one_stage, output_of, proto_of


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

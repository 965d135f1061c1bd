"""What a stage's descriptor says of its inputs: flattened, grouped, side inputs."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.coders import WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import DestinationId, StageId
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import (
    describe,
)
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.stage_description import StageDescription
from tests.unit.portable import edges
from tests.unit.portable.described import (
    globally,
    grouped,
    split_and_pair,
    the_plan,
    to_run,
    values,
)
from tests.unit.portable.pipelines import named, one_stage, output_of, proto_of


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

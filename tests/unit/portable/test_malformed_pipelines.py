"""Protos that no SDK makes are refused by step, whatever is wrong with them."""

from collections.abc import Callable

import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.portability.api import standard_window_fns_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable.graphs import small


def dangling_root(proto: pb.Pipeline) -> None:
    proto.root_transform_ids.append("nowhere")


def dangling_part(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].subtransforms.append("nowhere")


def dangling_collection(proto: pb.Pipeline) -> None:
    del proto.components.pcollections["y"]


def dangling_coder(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].coder_id = "nowhere"


def dangling_component(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].coder_id = "kv"
    proto.components.coders["kv"].component_coder_ids.append("nowhere")


def dangling_windowing(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].windowing_strategy_id = "nowhere"


def dangling_window_coder(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].windowing_strategy_id = "v"
    proto.components.windowing_strategies["v"].window_coder_id = "nowhere"


def undecodable_window_fn(proto: pb.Pipeline) -> None:
    window_fn = proto.components.windowing_strategies["w"].window_fn
    window_fn.urn, window_fn.payload = urns.WINDOW_FN_FIXED, b"\xff\xff"


def sessions_without_gap(proto: pb.Pipeline) -> None:
    window_fn = proto.components.windowing_strategies["w"].window_fn
    window_fn.urn = urns.WINDOW_FN_SESSION


def windows_without_size(proto: pb.Pipeline) -> None:
    window_fn = proto.components.windowing_strategies["w"].window_fn
    payload = standard_window_fns_pb2.SlidingWindowsPayload()
    payload.period.seconds = 1
    window_fn.urn, window_fn.payload = urns.WINDOW_FN_SLIDING, payload.SerializeToString()


def dangling_environment(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].environment_id = "nowhere"


def dangling_state_coder(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.state_specs["cell"].bag_spec.element_coder_id = "nowhere"
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def odd_timer_coder(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.timer_family_specs["due"].timer_family_coder_id = next(iter(proto.components.coders))
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def timers_without_coder(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.timer_family_specs["due"].SetInParent()
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def coder_of_the_runner(proto: pb.Pipeline) -> None:
    proto.components.coders["wire:kv(a,b)"].spec.urn = urns.CODER_BYTES


def missing_payload(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.payload = b""


def undecodable_payload(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.payload = b"\xff\xff"


def payload_without_fn(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(requests_finalization=True)
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def side_input_without_collection(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.side_inputs["side"].access_pattern.urn = urns.SIDE_INPUT_ITERABLE
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def two_main_inputs(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["more"] = "x"


def cycle(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["0"] = "y"


def two_producers(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].outputs["0"] = "x"


def no_producer(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["0"] = "z"


def composite_in_itself(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].subtransforms.append("a")


def group_by_key_of_two(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.urn = urns.GROUP_BY_KEY
    proto.components.transforms["a"].inputs["more"] = "x"


def combine_without_accumulator(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.urn = urns.COMBINE_PER_KEY


@pytest.mark.parametrize(
    ("spoil", "where", "problem"),
    [
        (dangling_root, "the pipeline", "nowhere"),
        (dangling_part, "step a", "nowhere"),
        (dangling_collection, "step a", "y"),
        (dangling_coder, "step a", "nowhere"),
        (dangling_component, "step a", "nowhere"),
        (dangling_windowing, "step a", "nowhere"),
        (dangling_window_coder, "step a", "nowhere"),
        (undecodable_window_fn, "the windowing strategy w", "decoded"),
        (sessions_without_gap, "the windowing strategy w", "missing"),
        (windows_without_size, "the windowing strategy w", "the size of its windows"),
        (dangling_environment, "step a", "nowhere"),
        (dangling_state_coder, "step a", "nowhere"),
        (odd_timer_coder, "step a", "the coder of its timers"),
        (timers_without_coder, "step a", "the coder of its timers has to be"),
        (coder_of_the_runner, "wire:kv(a,b)", "begin with 'wire:'"),
        (missing_payload, "step a", "missing"),
        (undecodable_payload, "step a", "decoded"),
        (payload_without_fn, "step a", "DoFn"),
        (side_input_without_collection, "step a", "side"),
        (two_main_inputs, "step a", "main input"),
        (cycle, "step a", "consumes"),
        (two_producers, "step a", "step i"),
        (no_producer, "step a", "nothing makes"),
        (composite_in_itself, "step a", "contains itself"),
        (group_by_key_of_two, "step a", "one input"),
        (combine_without_accumulator, "step a", "accumulator"),
    ],
)
def test_a_malformed_pipeline_is_refused_by_step(
    spoil: Callable[[pb.Pipeline], None], where: str, problem: str
) -> None:
    proto = small()
    spoil(proto)
    with pytest.raises(InvalidPipelineError) as raised:
        from_proto(proto)
    assert raised.value.where == where
    assert problem in raised.value.problem

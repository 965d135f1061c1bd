"""Whatever the coders of a pipeline are like, it is compiled or refused, and soon."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as pb

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from tests.compiled import compile_pipeline
from tests.unit.job.prepare.odd_coders import Coders
from tests.unit.portable.pipelines import proto_of

SEEDS = 60
FAR_TOO_LONG_S = 240  # some seconds on an idle machine
ROOT = Path(__file__).parents[4]


def test_generated_coders_stream_or_are_refused_in_time() -> None:
    program = [sys.executable, "-m", "tests.unit.job.prepare.odd_coders", "1", str(SEEDS)]
    try:
        ended = subprocess.run(
            program, cwd=ROOT, capture_output=True, timeout=FAR_TOO_LONG_S, text=True, check=False
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode()
        pytest.fail(f"it does not end: {printed.splitlines()[-1:]}")
    assert ended.returncode == 0, ended.stdout[-500:] + ended.stderr[-3_000:]
    outcomes = [line.partition("streams: ")[2] for line in ended.stdout.splitlines()]
    assert any("contains itself" in each for each in outcomes)
    assert any("parts, counted as often" in each for each in outcomes)
    assert any("coders more than" in each for each in outcomes)
    assert any("is missing" in each for each in outcomes)
    assert {"False: ", "True: "} <= {*outcomes}  # some can run


def spread(p: beam.Pipeline) -> None:
    pairs = p | beam.Impulse() | "pair" >> beam.Map(lambda x: (x, x))
    pairs | "spread" >> beam.Reshuffle() | beam.GroupByKey() | "use" >> beam.Map(str)


def with_coders(made: Callable[[Coders], str]) -> Any:
    """Give each collection of ``spread`` a separate coder that ``made`` adds."""
    proto: pb.Pipeline = proto_of(spread)
    coders = Coders(proto)
    for name, collection in sorted(proto.components.pcollections.items()):
        if "Impulse" not in name:
            collection.coder_id = made(coders)
    return proto


def pairs_of_shared_parts(depth: int) -> Callable[[Coders], str]:
    return lambda coders: coders.chain(urns.CODER_KV, depth, 2)


def names_itself(urn: str, width: int) -> Callable[[Coders], str]:
    def make(coders: Coders) -> str:
        own = f"own{len(coders.ids)}"
        return coders.add(urn, [own] * width, id_=own)

    return make


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (pairs_of_shared_parts(24), "parts, counted as often as they occur"),
        (pairs_of_shared_parts(40), "parts, counted as often as they occur"),
        (names_itself(urns.CODER_KV, 2), "contains itself"),
        (names_itself("nobody:knows:it:v1", 1), "contains itself"),
        (lambda coders: coders.chain(urns.CODER_ITERABLE, 200, 1), "nests coders more than 100"),
    ],
)
def test_what_is_too_large_is_refused(
    made: Callable[[Coders], str], problem: str, is_streaming: bool
) -> None:
    proto = with_coders(made)
    with pytest.raises(InvalidPipelineError, match=problem) as raised:
        compile_pipeline(proto, is_streaming=is_streaming, apart=True)
    assert raised.value.where in {each.unique_name for each in proto.components.transforms.values()}


@pytest.mark.parametrize("is_streaming", [False, True])
def test_what_real_pipelines_have_is_compiled(is_streaming: bool) -> None:
    proto = with_coders(pairs_of_shared_parts(9))
    assert compile_pipeline(proto, is_streaming=is_streaming, apart=True).stages


def test_coders_that_no_step_uses_count(odd: pb.Pipeline) -> None:
    Coders(odd).add("nobody:knows:it:v1", ["odd0"])
    with pytest.raises(InvalidPipelineError) as raised:
        compile_pipeline(odd, apart=True)
    assert str(raised.value) == "the coder odd0: the coder odd0 contains itself"


def test_but_not_what_their_parts_are(odd: pb.Pipeline) -> None:
    Coders(odd).add("nobody:knows:it:v1", ["nowhere"])
    assert compile_pipeline(odd, apart=True).stages


@pytest.fixture
def odd() -> pb.Pipeline:
    return proto_of(spread)


def test_keys_that_are_rows_in_rows_are_not_built(odd: pb.Pipeline) -> None:
    """Beam takes 3^20 steps to build their coder."""
    coders = Coders(odd)
    key = coders.row(20)
    for collection in odd.components.pcollections.values():
        if odd.components.coders[collection.coder_id].spec.urn == urns.CODER_KV:
            coders.of[collection.coder_id].component_coder_ids[0] = key
    assert compile_pipeline(odd, apart=True).stages


def test_triggers_may_nest_as_deep_as_protobuf_allows(odd: pb.Pipeline) -> None:
    trigger = pb.Trigger(element_count=pb.Trigger.ElementCount(element_count=2))
    for _ in range(40):
        trigger = pb.Trigger(repeat=pb.Trigger.Repeat(subtrigger=trigger))
    for strategy in odd.components.windowing_strategies.values():
        strategy.trigger.CopyFrom(trigger)
    arrived = pb.Pipeline.FromString(odd.SerializeToString())
    plan = compile_pipeline(arrived, is_streaming=True)
    assert all("repeat(repeat(" in each.trigger for each in plan.graph.windowings.values())

"""SDK harnesses that answer what the Fn API does not allow."""

from collections.abc import Callable

import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2,
)

from beam_spark_runner.core.errors import (
    FnApiProtocolError,
)
from tests.harness.faults import Scripted, run_one
from tests.harness.scripted_sdk import ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


def answer_a_stranger(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.respond("12345")


def send_a_strangers_data(sdk: ScriptedSdk) -> None:
    sdk.connect()
    _, descriptor = sdk.next_bundle()
    sdk.send("12345", sink_of(descriptor), b"x")


def send_to_no_sink(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    sdk.send(instruction, "no sink", b"x")


def send_nonsense(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    sdk.send(instruction, sink_of(descriptor), b"\xff" * 7)


def send_half_an_element(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    (block,) = sdk.input_blocks(instruction)
    sdk.send(instruction, sink_of(descriptor), block[:-1])


def say_nothing_more(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.respond(instruction)


def answer_something_else(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, descriptor = sdk.next_bundle()
    list(sdk.input_blocks(instruction))
    sdk.send(instruction, sink_of(descriptor), is_last=True)
    sdk.respond(instruction, finalize_bundle=beam_fn_api_pb2.FinalizeBundleResponse())


def set_a_timer(sdk: ScriptedSdk) -> None:
    sdk.connect()
    instruction, _ = sdk.next_bundle()
    timers = beam_fn_api_pb2.Elements.Timers(
        instruction_id=instruction, transform_id="t", timers=b"1"
    )
    sdk.put_elements(beam_fn_api_pb2.Elements(timers=[timers]))


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (answer_a_stranger, "'12345', which nobody sent"),
        (send_a_strangers_data, "'12345', which nobody sent"),
        (send_to_no_sink, "output of no sink"),
        (send_nonsense, "bytes that are no elements"),
        (send_half_an_element, "bytes that are no elements"),
        (say_nothing_more, "nothing came on the data stream"),
        (answer_something_else, "finalize_bundle"),
        (set_a_timer, "no timers of that family"),
    ],
)
def test_what_the_fn_api_does_not_allow(
    scripted: Scripted, script: Callable[[ScriptedSdk], None], words: str
) -> None:
    with pytest.raises(FnApiProtocolError) as raised:
        run_one(scripted(script), [b"a"])
    assert words in str(raised.value)
    assert str(raised.value).startswith("step: ")


LONG_ID = "9" * 5_000
"""Python refuses to make a number of it."""


def answer_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.respond(LONG_ID)


def send_data_for_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect()
    _, descriptor = sdk.next_bundle()
    sdk.send(LONG_ID, sink_of(descriptor), b"x")


def send_timers_for_an_id_of_many_digits(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    timers = beam_fn_api_pb2.Elements.Timers(instruction_id=LONG_ID, timers=b"1")
    sdk.put_elements(beam_fn_api_pb2.Elements(timers=[timers]))


@pytest.mark.parametrize(
    "script",
    [
        answer_an_id_of_many_digits,
        send_data_for_an_id_of_many_digits,
        send_timers_for_an_id_of_many_digits,
    ],
)
def test_an_id_of_many_digits(scripted: Scripted, script: Callable[[ScriptedSdk], None]) -> None:
    with pytest.raises(
        FnApiProtocolError, match=r"step: .* instruction '9{20,99}, which nobody sent"
    ):
        run_one(scripted(script), [b"a"])

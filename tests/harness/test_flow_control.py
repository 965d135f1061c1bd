"""A side that is slow makes the other one wait, and fills nobody's memory."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.fn_api.protocol import (
    OutputArrived,
    OutputEnded,
    TimersArrived,
    TimersEnded,
)
from beam_spark_runner.harness.fn_api.services import inbox as inbox_module
from beam_spark_runner.harness.fn_api.services.data_service import OUTGOING_BYTES, DataStream
from beam_spark_runner.harness.fn_api.services.inbox import Inbox
from beam_spark_runner.harness.fn_api.services.instructions import InstructionIds
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]

Scripted = Callable[[Callable[[ScriptedSdk], None]], Pool]
MEGABYTE = 1 << 20
IN_GRPC = 24 * MEGABYTE  # what both ends' transports may hold, at a guess


def test_a_harness_that_does_not_read_makes_the_runner_wait(scripted: Scripted) -> None:
    go_on = threading.Event()

    def slow(sdk: ScriptedSdk) -> None:
        sdk.connect()
        instruction, descriptor = sdk.next_bundle()
        go_on.wait(60)
        size = sum(map(len, sdk.input_blocks(instruction)))
        sdk.send(instruction, sink_of(descriptor), element(b"%d" % size))
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)

    stage = stage_on(scripted(slow).url, one_step)
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    pushed = 0

    def push() -> None:
        nonlocal pushed
        for _ in range(100):
            bundle.push([b"x" * MEGABYTE], [BARE])
            pushed += 1
        bundle.finish()

    thread = threading.Thread(target=push)
    thread.start()
    seen = -1
    while seen != pushed or not pushed:  # until nothing moves any more
        seen = pushed
        time.sleep(0.7)
    assert 1 <= seen * MEGABYTE <= OUTGOING_BYTES + IN_GRPC
    go_on.set()
    thread.join()
    assert int(collected.values[0]) > 100 * MEGABYTE


def element(value: bytes) -> bytes:
    """Encode an element as the harness of ``one_step`` does."""
    from apache_beam.coders import BytesCoder, WindowedValueCoder
    from apache_beam.coders.coders import GlobalWindowCoder

    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    return bytes(coder.get_impl().encode_nested(BARE.with_value(value)))


def outputs(instruction: str, number: int, block: bytes, *, is_last: bool) -> Any:
    data = beam_fn_api_pb2.Elements.Data(
        instruction_id=instruction, transform_id="sink", data=block, is_last=is_last
    )
    return beam_fn_api_pb2.Elements(data=[data])


def timers(instruction: str, number: int, block: bytes, *, is_last: bool) -> Any:
    timers = beam_fn_api_pb2.Elements.Timers(
        instruction_id=instruction,
        transform_id="step",
        timer_family_id="due",
        timers=block,
        is_last=is_last,
    )
    return beam_fn_api_pb2.Elements(timers=[timers])


def both(instruction: str, number: int, block: bytes, *, is_last: bool) -> Any:
    kind = timers if number % 2 and not is_last else outputs
    return kind(instruction, number, block, is_last=is_last)


KINDS = pytest.mark.parametrize("kind", [outputs, timers, both])


def pump(
    stream: DataStream, count: int, instruction: str, size: int, kind: Callable[..., Any]
) -> threading.Thread:
    """Feed a stream as gRPC would; the thread ends when all was taken."""

    def blocks() -> Any:
        for number in range(count):
            block = bytes([number % 256]) * size
            yield kind(instruction, number, block, is_last=number == count - 1)

    thread = threading.Thread(target=stream._read, args=(blocks(),))
    thread.start()
    return thread


def take_all(stream: DataStream, inbox: Inbox) -> list[bytes]:
    found = []
    while not isinstance(event := stream.next_event(inbox, 20), OutputEnded | TimersEnded):
        if isinstance(event, TimersArrived):
            assert event.family == ("step", "due")
            found.append(event.coded_timers)
        else:
            assert isinstance(event, OutputArrived)
            assert event.transform == "sink"
            found.append(event.coded_elements)
    return found


@KINDS
def test_what_nobody_takes_makes_the_harness_wait(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Any]
) -> None:
    monkeypatch.setattr(inbox_module, "LIMIT_BYTES", 10 * 1000)
    ids = InstructionIds()
    stream = DataStream(ids, lambda error: None)
    id_ = ids.next()
    inbox = stream.open(id_)
    thread = pump(stream, 100, id_, 1000, kind)
    thread.join(1)
    assert thread.is_alive()
    assert len(inbox) <= 12
    assert inbox._file.end == 0
    blocks = take_all(stream, inbox)
    thread.join(20)
    assert [block[0] for block in blocks] == list(range(100))
    assert inbox._file.end == 0


@KINDS
def test_of_two_bundles_none_keeps_the_other_waiting(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Any]
) -> None:
    """The thread that empties one inbox may be waiting for the other bundle's outputs."""
    monkeypatch.setattr(inbox_module, "LIMIT_BYTES", 10 * 1000)
    ids = InstructionIds()
    stream = DataStream(ids, lambda error: None)
    first, second = ids.next(), ids.next()
    one, _ = stream.open(first), stream.open(second)
    pump(stream, 100, first, 1000, kind).join(20)
    assert len(one) == 101
    assert one._file.end > 0
    assert [block[0] for block in take_all(stream, one)] == list(range(100))


def test_what_waited_in_a_file_comes_in_order_and_leaves_it_empty() -> None:
    inbox = Inbox(limit_bytes=10)
    sink = TransformId("sink")
    for round_ in range(3):
        for number in range(50):
            inbox.put(OutputArrived(sink, b"%d/%d." % (round_, number)))
            inbox.put(OutputEnded(sink))
        for number in range(50):
            assert inbox.next_event() == OutputArrived(sink, b"%d/%d." % (round_, number))
            assert inbox.next_event() == OutputEnded(sink)
        assert inbox.next_event() is None
        assert inbox._file.end == 0
    inbox.close()

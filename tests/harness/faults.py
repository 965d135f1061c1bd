"""Runs one bundle on a scripted SDK harness."""

from collections.abc import Callable
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2_grpc

from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.scripted_sdk import Pool, ScriptedSdk, sink_of

Scripted = Callable[[Callable[[ScriptedSdk], None]], Pool]


def run_one(pool: Pool, values: list[bytes], *, start_timeout_s: float = 30) -> Collected:
    stage = stage_on(pool.url, one_step, start_timeout_s=start_timeout_s)
    collected = Collected()
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
    try:
        bundle.push(values, [BARE] * len(values))
        bundle.finish()
    except BaseException:
        bundle.abort()
        raise
    return collected


def echo(sdk: ScriptedSdk) -> None:
    """Do what an SDK does."""
    sdk.connect()
    while True:
        instruction, descriptor = sdk.next_bundle()
        for block in sdk.input_blocks(instruction):
            sdk.send(instruction, sink_of(descriptor), block)
        sdk.send(instruction, sink_of(descriptor), is_last=True)
        sdk.respond(instruction)


def drop_control(sdk: ScriptedSdk) -> None:
    sdk.connect().next_bundle()
    sdk.end_control()
    sdk.instructions.cancel()


def take_a_bundle_and_sleep(sdk: ScriptedSdk) -> None:
    next(sdk.connect().instructions)
    list(sdk.instructions)


def ask_state(sdk: ScriptedSdk, *requests: Any) -> list[Any]:
    stub = beam_fn_api_pb2_grpc.BeamFnStateStub(sdk.channel)
    return list(stub.State(iter(requests), metadata=sdk.metadata))

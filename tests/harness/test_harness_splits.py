"""Splits that SDK harnesses answer to, rightly or not."""

from collections.abc import Callable

import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2,
)

from beam_spark_runner.core.errors import (
    EnvironmentStartError,
    FnApiProtocolError,
)
from tests.harness.conftest import BARE, Collected, one_step, stage_on
from tests.harness.faults import Scripted, take_a_bundle_and_sleep
from tests.harness.scripted_sdk import Pool, ScriptedSdk

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(60), pytest.mark.usefixtures("soon")]


def split_at(last: int, first: int) -> Callable[[ScriptedSdk], None]:
    def answer(sdk: ScriptedSdk) -> None:
        sdk.connect().next_bundle()
        request = next(sdk.instructions)
        split = beam_fn_api_pb2.ProcessBundleSplitResponse()
        split.channel_splits.add(last_primary_element=last, first_residual_element=first)
        sdk.respond(request.instruction_id, process_bundle_split=split)
        list(sdk.instructions)

    return answer


def split_of_three(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Push three elements, and return those that a split gives back."""
    stage = stage_on(pool.url, one_step)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    monkeypatch.setattr(bundle, "_is_splittable", True)
    bundle.push([b"a", b"b", b"c"], [BARE] * 3)
    try:
        given_back = bundle.split(0.5)
    finally:
        bundle.abort()
    return [each.application.element[-1:] for each in given_back]


@pytest.mark.parametrize(
    ("last", "first", "given_back"),
    [(1, 2, [b"c"]), (0, 2, [b"c"]), (-1, 0, [b"a", b"b", b"c"]), (2, 3, [])],
)
def test_a_split_gives_back_what_is_not_begun(
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    last: int,
    first: int,
    given_back: list[bytes],
) -> None:
    assert split_of_three(scripted(split_at(last, first)), monkeypatch) == given_back


@pytest.mark.parametrize(
    ("last", "first"), [(-2, -1), (0, -1), (3, 4), (0, 3), (1, 1), (2, 1), (-(1 << 63), 1 << 62)]
)
def test_a_split_at_elements_that_are_not_there(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, last: int, first: int
) -> None:
    """What is done and what is left is not known: the bundle must not succeed."""
    with pytest.raises(FnApiProtocolError, match=rf"step: .* up to number {last} .* of 3"):
        split_of_three(scripted(split_at(last, first)), monkeypatch)


@pytest.mark.usefixtures("short_silence")
def test_a_harness_that_does_not_take_its_input(scripted: Scripted) -> None:
    stage = stage_on(scripted(take_a_bundle_and_sleep).url, one_step, start_timeout_s=4)
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    megabytes = [b"x" * (1 << 20)] * 10
    bundle.push(megabytes, [BARE] * 10)  # as much as may wait
    with pytest.raises(EnvironmentStartError, match="no data stream within 4 s"):
        bundle.push(megabytes, [BARE] * 10)
    bundle.abort()

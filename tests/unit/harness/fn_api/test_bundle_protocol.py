"""The bundle machine: what may follow what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.errors import (
    FnApiProtocolError,
    InvariantError,
    SdkDisconnectedError,
)
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.fn_api.protocol import (
    Action,
    BundleProtocol,
    Complete,
    Deliver,
    Event,
    Fail,
    FailUserCode,
    InputEnded,
    Lost,
    OutputArrived,
    OutputEnded,
    Responded,
    Silent,
)

A, B, NOBODY = TransformId("a"), TransformId("b"), TransformId("nobody")
DONE = Responded("", b"response")


def run(events: list[Event]) -> list[Action]:
    protocol = BundleProtocol("7", {A, B})
    return [action for event in events for action in protocol.on(event)]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([InputEnded(), OutputEnded(A), OutputEnded(B), DONE], id="outputs first"),
        pytest.param([InputEnded(), DONE, OutputEnded(A), OutputEnded(B)], id="response first"),
        pytest.param([OutputEnded(A), InputEnded(), DONE, OutputEnded(B)], id="between"),
    ],
)
def test_a_bundle_is_whole_with_the_response_and_the_end_of_each_output(
    events: list[Event],
) -> None:
    assert run(events[:-1]) == []
    assert run(events) == [Complete(b"response")]


def test_outputs_are_delivered_as_they_come_also_after_the_response() -> None:
    assert run(
        [
            OutputArrived(A, b"1"),
            InputEnded(),
            DONE,
            OutputArrived(B, b"2"),
            OutputArrived(B, b""),
            OutputEnded(A),
            OutputEnded(B),
        ]
    ) == [Deliver(A, b"1"), Deliver(B, b"2"), Complete(b"response")]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        pytest.param([DONE], "before it had all of its input", id="response before the input"),
        pytest.param([InputEnded(), DONE, DONE], "answered twice", id="two responses"),
        pytest.param([OutputArrived(NOBODY, b"1")], "nobody that has no sink", id="no such sink"),
        pytest.param([OutputEnded(NOBODY)], "nobody that has no sink", id="end of no such sink"),
        pytest.param([OutputEnded(A), OutputArrived(A, b"1")], "after its end", id="after the end"),
        pytest.param([OutputEnded(A), OutputEnded(A)], "after its end", id="two ends"),
        pytest.param(
            [InputEnded(), OutputEnded(A), DONE, Silent(10)],
            "the outputs of b are not complete",
            id="silence",
        ),
    ],
)
def test_what_the_fn_api_does_not_allow_fails_the_bundle(events: list[Event], words: str) -> None:
    (action,) = run(events)
    assert isinstance(action, Fail)
    assert isinstance(action.error, FnApiProtocolError)
    assert words in str(action.error)
    assert "bundle 7" in str(action.error)


def test_silence_is_no_fault_while_user_code_may_still_run() -> None:
    assert run([InputEnded(), Silent(10)]) == []


def test_an_error_of_user_code_may_come_at_any_time() -> None:
    assert run([Responded("boom")]) == [FailUserCode("boom")]
    assert run([InputEnded(), OutputEnded(A), Responded("boom")]) == [FailUserCode("boom")]


def test_a_lost_harness_fails_the_bundle_once() -> None:
    error = SdkDisconnectedError("gone")
    assert run([Lost(error), Lost(error), OutputArrived(A, b"1"), DONE]) == [Fail(error)]


def test_input_that_ends_twice_is_our_fault() -> None:
    with pytest.raises(InvariantError):
        run([InputEnded(), InputEnded()])


EVENTS = st.one_of(
    st.builds(OutputArrived, st.sampled_from([A, B, NOBODY]), st.binary(max_size=3)),
    st.builds(OutputEnded, st.sampled_from([A, B, NOBODY])),
    st.builds(Responded, st.sampled_from(["", "", "boom"]), st.binary(max_size=3)),
    st.just(Lost(SdkDisconnectedError("gone"))),
    st.just(Silent(1.0)),
)


@given(st.lists(EVENTS, max_size=20), st.integers(0, 20))
def test_a_bundle_ends_once_and_nothing_follows(events: list[Event], input_ends_at: int) -> None:
    events.insert(input_ends_at, InputEnded())
    actions = run(events)
    ends = [place for place, each in enumerate(actions) if not isinstance(each, Deliver)]
    assert len(ends) <= 1
    assert ends in ([], [len(actions) - 1])
    if actions and isinstance(actions[-1], Complete):
        assert {A, B} <= {each.transform for each in events if isinstance(each, OutputEnded)}

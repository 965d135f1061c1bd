"""What a worker and the driver say to each other, step by step, without threads."""

import pytest

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows, TaskProgress
from beam_spark_runner.backchannel import outbox
from beam_spark_runner.backchannel.conversation import (
    AskTasks,
    Connect,
    Conversation,
    Hear,
    Leave,
    Send,
    Sleep,
)
from beam_spark_runner.core.errors import InvariantError
from tests.unit.backchannel.served import Callbacks


def begun() -> Conversation:
    return Conversation(0.0, look_every_s=1.0)


def connected() -> Conversation:
    talk = begun()
    talk.log(0.1, b"hello")
    assert talk.next_action(0.1) == Connect()
    talk.connected(0.1)
    send(talk)
    return talk


def send(talk: Conversation, now_s: float = 0.1) -> Send:
    action = talk.next_action(now_s)
    assert isinstance(action, Send)
    talk.sent(now_s)
    return action


def test_it_connects_with_the_first_message_and_sends_all_that_wait_at_once() -> None:
    talk = begun()
    assert talk.next_action(0.0) == Sleep(None)
    for line in (b"one", b"two"):
        assert talk.log(0.1, line)
    assert talk.leave_out(0.1, 7)
    assert talk.offer(0.1, OfferedRows(attempt=1))
    for run in (1, 2):
        assert talk.report_progress(0.1, TaskProgress(attempt=9, run=run))
    assert talk.messages_sent == 6
    assert talk.next_action(0.1) == Connect()
    talk.connected(0.2)
    action = talk.next_action(0.2)
    assert isinstance(action, Send)
    assert list(action.frame.log_entries) == [b"one", b"two"]
    assert action.frame.left_out == 7
    assert [each.attempt for each in action.frame.offers] == [1]
    assert [each.run for each in action.frame.progress] == [2]  # the latest replaces the other
    assert action.frame.messages_sent == 6
    was_idle = talk.is_idle
    talk.sent(0.3)
    assert (was_idle, talk.is_idle) == (False, True)
    assert talk.next_action(0.3) == Sleep(None)


def test_lines_beyond_the_bound_are_counted() -> None:
    talk = begun()
    for _ in range(outbox.MAX_LINES + 3):
        talk.log(0.0, b"line")
    talk.next_action(0.0)
    talk.connected(0.0)
    frame = send(talk).frame
    assert (len(frame.log_entries), frame.left_out) == (outbox.MAX_LINES, 3)


def test_many_bytes_of_lines_are_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_BYTES_OF_LINES", 10)
    talk = connected()
    for line in (b"123456789012", b"1234", b"123456", b"1"):
        talk.log(0.1, line)
    frames = [send(talk).frame for _ in range(3)]
    assert [list(frame.log_entries) for frame in frames] == [
        [b"123456789012"],
        [b"1234", b"123456"],
        [b"1"],
    ]
    # The driver waits for the lines that remain.
    assert [frame.messages_sent for frame in frames] == [2, 4, 5]
    assert talk.is_idle


def test_tasks_are_asked_at_intervals_for_as_long_as_some_run() -> None:
    talk = begun()
    assert talk.begin_task(0.25, 1, TaskProgress)
    assert not talk.begin_task(0.5, 2, TaskProgress)  # the alarm is set
    assert talk.next_action(0.5) == Sleep(0.5)
    talk.end_task(0.75, 1)
    assert talk.next_action(1.0) == AskTasks(((2, TaskProgress),))
    assert talk.next_action(1.0) == Sleep(1.0)
    talk.end_task(1.5, 2)
    assert not talk.begin_task(1.6, 3, TaskProgress)
    talk.end_task(1.7, 3)
    assert talk.next_action(2.0) == Sleep(None)
    assert talk.begin_task(2.5, 4, TaskProgress)
    assert talk.next_action(2.5) == Sleep(0.5)  # a second after the last look
    assert talk.messages_sent == 0


@pytest.mark.parametrize(("now_s", "is_told"), [(0.5, False), (1.0, True)])
def test_a_task_of_a_short_job_tells_no_progress_at_its_end(now_s: float, is_told: bool) -> None:
    talk = begun()
    talk.begin_task(0.0, 1, TaskProgress)
    assert talk.end_task(now_s, 1) == is_told


def test_the_driver_is_heard_once_somebody_waits_for_it() -> None:
    talk = connected()
    assert talk.next_action(0.2) == Sleep(None)
    assert talk.hold(0.3, 1, [Callbacks()], None)
    assert talk.next_action(0.3) == Hear()
    assert send(talk).frame.messages_sent == 2  # without content, so that the driver can answer
    assert talk.await_end(0.4)
    assert not talk.await_end(0.4)
    assert send(talk).frame.awaits_end
    assert talk.next_action(0.5) == Sleep(None)


def test_an_accepted_attempt_runs_its_callbacks_and_drops_those_of_earlier_epochs() -> None:
    talk = connected()
    void, same, batch, kept = Callbacks(), Callbacks(), Callbacks(), Callbacks()
    talk.hold(0.2, 1, [void], 4)
    talk.hold(0.2, 2, [same], 5)
    talk.hold(0.2, 3, [batch], None)
    talk.hold(0.2, 4, [kept, kept], 5)
    assert talk.accepted(0.3, 4) == ([kept, kept], [void])
    assert talk.accepted(0.3, 4) == ([], [])
    assert talk.accepted(0.3, 77) == ([], [])
    assert talk.finalized(0.3, 4)
    talk.next_action(0.3)
    assert list(send(talk).frame.finalized) == [4]
    assert talk.holds
    assert talk.hung_up(0.4) == [same, batch]
    assert not talk.holds


def test_callbacks_run_whose_driver_goes_away_before_it_is_told() -> None:
    talk = connected()
    held = Callbacks()
    talk.hold(0.2, 1, [held], None)
    assert talk.accepted(0.3, 1).run == [held]
    talk.lost(0.4, "gone")
    assert not talk.finalized(0.4, 1)
    assert talk.left(0.4).drop == []
    assert talk.hung_up(0.4) == []


def test_what_the_driver_will_never_accept_is_not_held() -> None:
    talk = connected()
    talk.hung_up(0.2)
    assert not talk.hold(0.3, 1, [Callbacks()], None)
    assert talk.messages_sent == 1
    assert talk.log(0.3, b"but lines are sent")
    assert send(talk).frame.messages_sent == 2


def test_the_end_of_the_job_is_reported_once_it_is_torn_down_though_close_comes_before() -> None:
    talk = connected()
    held = Callbacks()
    talk.await_end(0.2)
    talk.hold(0.2, 1, [held], None)
    assert talk.next_action(0.2) == Hear()
    send(talk)
    assert talk.job_ended(0.3) == [held]
    talk.close(0.4)
    assert talk.next_action(0.4) == Sleep(None)
    was_ended = talk.is_ended
    assert talk.log(0.5, b"last words")
    send(talk)
    assert talk.torn_down(0.6)
    assert send(talk).frame.has_torn_down
    assert (was_ended, talk.is_ended) == (False, True)
    assert talk.next_action(0.7) == Leave()
    assert talk.left(0.7) == ([], 0, [])


def test_a_job_that_ends_while_its_connection_closes_is_torn_down_before() -> None:
    talk = connected()
    talk.await_end(0.2)
    talk.next_action(0.2)
    send(talk)
    talk.log(0.3, b"line")
    talk.close(0.3)
    talk.job_ended(0.3)
    send(talk)
    assert talk.next_action(0.4) == Sleep(None)
    talk.torn_down(0.5)
    assert send(talk).frame.has_torn_down
    assert talk.next_action(0.5) == Leave()


def test_a_teardown_that_fails_keeps_nobody_waiting() -> None:
    talk = connected()
    talk.await_end(0.2)
    talk.job_ended(0.3)
    talk.close(0.3)
    talk.hung_up(0.4)  # its thread has ended
    assert talk.is_ended
    send(talk)
    assert talk.next_action(0.4) == Leave()


def test_the_driver_of_a_long_job_is_heard_since_it_may_ask_for_stacks() -> None:
    talk = connected()
    talk.begin_task(0.2, 1, TaskProgress)
    assert isinstance(talk.next_action(0.2), Sleep)
    assert isinstance(talk.next_action(9.0), AskTasks)
    assert talk.next_action(9.0) == Hear()
    assert talk.report_stacks(9.1, 3, "in a step")
    (stacks,) = send(talk).frame.stacks
    assert (stacks.request, stacks.text) == (3, "in a step")


def test_a_connection_that_was_never_needed_is_closed_without_being_opened() -> None:
    talk = begun()
    talk.begin_task(0.0, 1, TaskProgress)
    talk.close(0.1)
    assert talk.next_action(0.1) == Leave()
    assert not talk.log(0.2, b"late")
    assert not talk.is_lost  # nobody prints it
    assert talk.is_ended


def test_what_a_broken_connection_has_not_sent_is_returned() -> None:
    talk = connected()
    held = Callbacks()
    talk.begin_task(0.1, 1, TaskProgress)
    talk.log(0.1, b"under way")
    talk.leave_out(0.1, 2)
    assert isinstance(talk.next_action(0.1), Send)
    talk.log(0.1, b"waits")
    talk.leave_out(0.1, 3)
    talk.hold(0.1, 1, [held], None)
    talk.lost(0.2, "Broken pipe")
    assert talk.messages_sent == 0
    assert talk.is_idle
    assert not talk.log(0.3, b"late")
    assert not talk.begin_task(0.3, 1, TaskProgress)
    assert talk.next_action(9.0) == Leave()
    assert talk.left(0.4) == ([b"under way", b"waits"], 5, [held])


def test_a_thread_that_fails_loses_the_connection() -> None:
    talk = connected()
    talk.log(0.2, b"line")
    assert talk.left(0.3).lines == [b"line"]
    assert talk.is_lost
    assert "the thread has failed" in str(talk.story)


def test_the_story_and_errors_say_what_has_happened() -> None:
    talk = connected()
    talk.log(1.5, b"line")
    talk.next_action(1.5)
    with pytest.raises(InvariantError, match=r"under way .*0\.1 s: connected"):
        talk.next_action(1.5)
    talk.lost(2.0, "Broken pipe")
    assert str(talk.story) == (
        "0.1 s: line, 0.1 s: connected, 0.1 s: sent, 1.5 s: line, 2.0 s: lost: Broken pipe"
    )


@pytest.mark.parametrize(
    ("event", "message"),
    [
        pytest.param(lambda talk: talk.connected(1.0), "connected, which", id="connected"),
        pytest.param(lambda talk: talk.sent(1.0), "nothing under way", id="sent"),
        pytest.param(lambda talk: talk.torn_down(1.0), "before the job's end", id="torn down"),
    ],
)
def test_events_that_cannot_be_are_errors(event: object, message: str) -> None:
    assert callable(event)
    with pytest.raises(InvariantError, match=message):
        event(connected())

"""Conversations of any events in any order, without threads: what holds in all of them."""

import random
from collections.abc import Callable

import pytest

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows, TaskProgress, WorkerFrame
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
from beam_spark_runner.core.story import MAX_EVENTS
from tests.unit.backchannel.served import Callbacks

CONVERSATIONS = 1_500
MAX_LINES, MAX_BYTES = 6, 40


class World:
    """A worker, a link and a driver, of which any step may be next; it checks each of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 100.0
        self.talk = Conversation(self.now_s, look_every_s=1.0)
        self.said: list[bytes] = []
        self.left_out = 0  # without the lines that the machine counts itself
        self.given = 0
        self.frames: list[WorkerFrame] = []
        self.remains: list[tuple[bytes, ...]] = []
        self.unsent_left_out = 0
        self.held: dict[int, Callbacks] = {}
        self.epochs: dict[int, int | None] = {}
        self.rejected: set[int] = set()
        self.accepted: set[int] = set()
        self.refused: list[Callbacks] = []
        # The threads of the shell, and where they are.
        self.sends: WorkerFrame | None = None
        self.connects = self.is_connected = self.has_left = False
        self.hears: bool | None = None
        self.runs: int | None = None  # an attempt whose callbacks have run
        self.tears_down = False
        self.ends = 0

    def lines(self) -> list[bytes]:
        return [line for frame in self.frames for line in frame.log_entries]

    # Steps of tasks.

    def takes(self, is_taken: bool, was_over: bool) -> bool:
        assert is_taken != was_over
        self.given += is_taken
        return is_taken

    def say_line(self) -> None:
        line = f"{len(self.said)} ".encode() * self.random.randint(1, 20)
        if self.takes(self.talk.log(self.now_s, line), self.talk.is_over):
            self.said.append(line)

    def leave_out(self) -> None:
        if self.takes(self.talk.leave_out(self.now_s, 3), self.talk.is_over):
            self.left_out += 3

    def report_progress(self) -> None:
        progress = TaskProgress(attempt=self.random.randint(1, 3))
        self.takes(self.talk.report_progress(self.now_s, progress), self.talk.is_over)

    def offer(self) -> None:
        self.takes(self.talk.offer(self.now_s, OfferedRows()), self.talk.is_over)

    def hold(self) -> None:
        callbacks, attempt = Callbacks(), len(self.held) + 1
        epoch = self.random.choice([None, attempt // 3])
        if self.talk.hold(self.now_s, attempt, [callbacks], epoch):
            self.given += 1
            self.held[attempt], self.epochs[attempt] = callbacks, epoch
            if self.random.random() < 0.3:
                self.rejected.add(attempt)
        else:
            assert self.talk.is_over or self.hears is False
            self.refused.append(callbacks)

    def await_end(self) -> None:
        self.given += self.talk.await_end(self.now_s)

    def begin_task(self) -> None:
        self.talk.begin_task(self.now_s, self.random.randint(1, 3), TaskProgress)

    def end_task(self) -> None:
        self.talk.end_task(self.now_s, self.random.randint(1, 3))

    def close(self) -> None:
        if self.random.random() < 0.1:
            self.talk.close(self.now_s)

    # Steps of the thread that sends.

    def go_on_sending(self) -> None:
        if self.has_left:
            assert self.talk.next_action(self.now_s) == Leave()
        elif self.connects or self.sends is not None:
            self.come_back()
        else:
            self.begin_action()

    def come_back(self) -> None:
        was_over = self.talk.is_over
        if self.random.random() < 0.04:
            self.talk.lost(self.now_s, "broken")
            assert self.talk.is_lost
        elif self.connects:
            self.talk.connected(self.now_s)
            self.is_connected = True
        else:
            assert self.sends is not None
            self.frames.append(self.sends)
            self.talk.sent(self.now_s)
        assert not was_over  # only this thread ends the conversation
        self.connects, self.sends = False, None

    def begin_action(self) -> None:
        was_over = self.talk.is_over
        match self.talk.next_action(self.now_s):
            case AskTasks(tasks):
                assert tasks
            case Connect():
                assert not self.is_connected
                self.connects = True
            case Hear():
                assert self.is_connected
                assert self.hears is None
                self.hears = True
            case Send(frame):
                assert self.is_connected
                assert not was_over
                assert len(frame.log_entries) == 1 or sum(map(len, frame.log_entries)) <= MAX_BYTES
                self.sends = frame
            case Sleep(seconds):
                assert not was_over
                assert self.talk.is_idle
                assert seconds is None or 0 < seconds <= 1.0
            case Leave():
                remains = self.talk.left(self.now_s)
                self.remains.append(tuple(remains.lines))
                self.unsent_left_out += remains.left_out
                assert self.talk.is_lost or not (remains.lines or remains.left_out)
                self.drop(remains.drop)
                self.has_left = True

    def drop(self, callbacks: object) -> None:
        assert isinstance(callbacks, list)
        for each in callbacks:
            each.drop()

    # Steps of the thread that hears.

    def go_on_hearing(self) -> None:
        if not self.hears:
            return
        if self.runs is not None:
            attempt, self.runs = self.runs, None
            self.given += self.talk.finalized(self.now_s, attempt)
        elif self.tears_down:
            self.tears_down = False
            if self.random.random() < 0.2:
                return self.hang_up()  # the teardown has failed
            self.given += self.talk.torn_down(self.now_s)
        elif (chance := self.random.random()) < 0.05 or self.has_left:
            self.hang_up()
        elif chance < 0.1 and not self.ends:
            self.ends += 1
            self.tears_down = True
            self.drop(self.talk.job_ended(self.now_s))
        else:
            self.accept()
        return None

    def hang_up(self) -> None:
        self.drop(self.talk.hung_up(self.now_s))
        self.hears = False
        assert not self.talk.holds  # nothing will be accepted any more
        assert self.talk.is_over or self.talk.is_ended

    def accept(self) -> None:
        attempts = sorted(self.held.keys() - self.rejected)
        if not attempts:
            return
        attempt = self.random.choice(attempts)
        waiting = [number for number, each in self.held.items() if not each.happened]
        was_held = attempt in waiting
        verdict = self.talk.accepted(self.now_s, attempt)
        assert verdict.run == ([self.held[attempt]] if was_held else [])
        for each in verdict.run:
            each.run()
            self.accepted.add(attempt)
        latest = self.epochs[attempt] if was_held else None
        void = [number for number in waiting if self.is_of_earlier_epoch(number, latest)]
        assert verdict.drop == [self.held[number] for number in void]
        self.drop(verdict.drop)
        self.runs = attempt

    def is_of_earlier_epoch(self, attempt: int, latest: int | None) -> bool:
        epoch = self.epochs[attempt]
        return epoch is not None and latest is not None and epoch < latest

    # What holds after each step, and at the end.

    def check(self) -> None:
        assert len(self.talk.story) <= MAX_EVENTS
        assert len(self.talk._outbox._lines) <= MAX_LINES
        assert self.talk.messages_sent == (0 if self.talk.is_lost else self.given)
        counts = [frame.messages_sent for frame in self.frames]
        assert counts == sorted(set(counts))
        if self.talk.is_idle and not self.talk.is_over and counts:
            assert counts[-1] == self.given
        for attempt, callbacks in self.held.items():
            outcome = ["run"] if attempt in self.accepted else ["dropped"]
            assert callbacks.happened in ([], outcome)
        assert not any(each.happened for each in self.refused)

    def finish(self) -> None:
        """Let the connection end, and its threads."""
        self.talk.close(self.now_s)
        while not self.has_left or self.hears:
            self.go_on_hearing()
            self.go_on_sending()
            self.check()
        assert self.talk.is_over
        assert self.talk.is_ended
        assert not self.talk.holds
        for attempt, callbacks in self.held.items():
            assert callbacks.happened == (["run"] if attempt in self.accepted else ["dropped"])
        sent, unsent = self.lines(), [line for lines in self.remains for line in lines]
        assert self.talk.is_lost or not unsent
        self.check_lines(sent + unsent)

    def check_lines(self, given_out: list[bytes]) -> None:
        said = iter(self.said)
        assert all(line in said for line in given_out)  # in order, none twice
        counted = sum(frame.left_out for frame in self.frames) + self.unsent_left_out
        assert len(given_out) + counted == len(self.said) + self.left_out


def steps_of(world: World) -> list[Callable[[], None]]:
    of_tasks: list[Callable[[], None]] = [
        *(world.say_line, world.leave_out, world.report_progress, world.offer),
        *(world.hold, world.await_end, world.begin_task, world.end_task, world.close),
    ]
    return of_tasks + 5 * [world.go_on_sending] + 3 * [world.go_on_hearing] + 3 * [world.say_line]


@pytest.mark.parametrize("block", range(5))
def test_what_holds_in_any_conversation(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_LINES", MAX_LINES)
    monkeypatch.setattr(outbox, "MAX_BYTES_OF_LINES", MAX_BYTES)
    seen = {"lost": 0, "closed": 0, "run": 0, "dropped": 0, "torn down": 0}
    for seed in range(block * CONVERSATIONS // 5, (block + 1) * CONVERSATIONS // 5):
        world = World(seed)
        steps = steps_of(world)
        for _ in range(world.random.randint(5, 150)):
            world.now_s += world.random.choice([0.0, 0.0, 0.1, 0.7])
            world.random.choice(steps)()
            world.check()
        world.finish()
        seen["lost" if world.talk.is_lost else "closed"] += 1
        seen["run"] += bool(world.accepted)
        seen["dropped"] += len(world.held) > len(world.accepted)
        seen["torn down"] += any(frame.has_torn_down for frame in world.frames)
    assert min(seen.values()) > 10, seen

"""The backchannel, both ends in one process, over real sockets and real files."""

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from beam_spark_runner._generated.backchannel_pb2 import (
    DriverFrame,
    OfferedRows,
    TaskProgress,
    WorkerFrame,
)
from beam_spark_runner.backchannel import transport, worker
from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.outbox import MAX_LINES
from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.backchannel.worker import Backchannel
from beam_spark_runner.core.framing import framed
from tests.unit.backchannel.served import (
    LOOPBACK,
    Callbacks,
    Heard,
    entry,
    messages,
    serving,
    until,
)


@pytest.mark.parametrize("way", ["socket", "files"])
def test_what_is_told_arrives_in_order(way: str, tmp_path: Path) -> None:
    heard: Heard = []
    with serving(way, tmp_path, heard) as server:
        channel = Backchannel(server.route)
        for number in range(300):
            channel.log(entry(f"line {number}"))
        worker, sent = channel.messages_sent()
        assert worker == channel.worker
        server.expect(worker, sent)
        assert server.settle()
        assert messages(heard) == [f"line {number}" for number in range(300)]
        assert {name for name, _ in heard} == {worker}
        channel.close()


@pytest.mark.parametrize("way", ["socket", "files"])
def test_tasks_are_asked_how_far_they_are(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_EVERY_S", 0.05)
    heard: Heard = []
    looks = iter(range(1, 100))

    def look() -> TaskProgress:
        if (number := next(looks)) == 2:
            raise RuntimeError("dictionary changed size during iteration")
        return TaskProgress(run=number)

    with serving(way, tmp_path, heard) as server:
        channel = Backchannel(server.route)
        with channel.watching(77, look):
            until(lambda: any(each.run >= 3 for _, frame in heard for each in frame.progress))
        assert {each.attempt for _, frame in heard for each in frame.progress} == {77}
        channel.close()


def test_a_worker_without_a_profile_answers_with_the_reason(tmp_path: Path) -> None:
    def memory() -> str:
        raise OSError("no space")

    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route, memory=memory)
        channel.hold(1, [Callbacks()])  # so that it hears the driver
        channel.log(entry("begins"))
        until(lambda: bool(heard))
        server.ask(DriverFrame(wants_memory=5))
        until(lambda: any(frame.stacks for _, frame in heard))
        (answer,) = (each for _, frame in heard for each in frame.stacks)
        assert (answer.request, answer.text) == (5, "it is not known: OSError('no space')")
        channel.close()


@pytest.mark.parametrize("way", ["socket", "files"])
def test_rows_are_offered_once(way: str, tmp_path: Path) -> None:
    heard: Heard = []
    offer = OfferedRows(attempt=7, run=3, level=1, rows=b"rows")
    with serving(way, tmp_path, heard) as server:
        channel = Backchannel(server.route)
        channel.offer(offer)
        channel.log(entry("later"))
        until(lambda: messages(heard) == ["later"])
        channel.close()
    assert [each for _, frame in heard for each in frame.offers] == [offer]


def test_short_tasks_one_after_another_do_not_wake_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        monkeypatch.setattr(worker, "LOOK_EVERY_S", 3600)
        channel = Backchannel(server.route)
        wake_ups = 0
        wake_up = channel._threads._wake_up

        def count() -> None:
            nonlocal wake_ups
            wake_ups += 1
            wake_up()

        monkeypatch.setattr(channel._threads, "_wake_up", count)
        for attempt in range(20):
            with channel.watching(attempt, TaskProgress, at_end=False):
                pass
        assert wake_ups == 1
        channel.close()


def heard_of(heard: Heard) -> list[int]:
    return [each.attempt for _, frame in heard for each in frame.progress]


def test_a_task_is_watched_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LOOK_EVERY_S", 0.02)
    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route)
        for attempt in (1, 2, 3):
            with channel.watching(attempt, TaskProgress, at_end=False):
                until(lambda: heard_of(heard)[-1:] == [attempt])  # noqa: B023
            until(lambda: channel._talk._alarm_s is None)  # the thread sleeps until it is woken
        channel.close()


def test_a_short_job_tells_nothing_and_does_not_call(tmp_path: Path) -> None:
    def connect(route: Route, worker: str) -> transport.DriverLink:
        raise AssertionError("it called")

    channel = Backchannel(Route(job_id="job", address=LOOPBACK), connect)
    with channel.watching(1, TaskProgress):
        pass
    assert channel.messages_sent() == ("", 0)
    channel.close()


def test_a_process_that_is_about_to_end_sends_its_last_words(tmp_path: Path) -> None:
    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route)
        assert channel.wait_until_sent(10)
        for number in range(50):
            channel.log(entry(f"line {number}"))
        assert channel.wait_until_sent(10)
        until(lambda: len(messages(heard)) == 50)
        channel.close()


@pytest.mark.parametrize("way", ["socket", "files"])
def test_callbacks_run_when_their_attempt_is_accepted(way: str, tmp_path: Path) -> None:
    heard: Heard = []
    kept, void, late = Callbacks(), Callbacks(), Callbacks()
    with serving(way, tmp_path, heard) as server:
        channel = Backchannel(server.route)
        assert channel.hold(1, [kept, kept])
        assert channel.hold(2, [void])
        server.accept(channel.worker, [1])  # perhaps before the worker has called
        assert server.settle()
        assert kept.happened == ["run", "run"]
        channel.hold(3, [late])
        server.accept(channel.worker, [3, 77])
        until(lambda: [n for _, frame in heard for n in frame.finalized] == [1, 3, 77])
        assert late.happened == ["run"]
        assert void.happened == []
        channel.close()
        until(lambda: void.happened == ["dropped"])


def test_callbacks_are_dropped_when_the_driver_has_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = Callbacks()
    with serving("socket", tmp_path, []) as server:
        channel = Backchannel(server.route)
        channel.hold(1, [held])
        server.expect(*channel.messages_sent())
        assert server.settle()
    until(lambda: held.happened == ["dropped"])
    never = Callbacks()
    assert not Backchannel(Route(job_id="job")).hold(1, [never])
    assert never.happened == ["dropped"]
    assert "is not connected (0.0 s: lost: there is no way to the driver)" in caplog.text


def test_a_flood_is_counted(tmp_path: Path) -> None:
    """Nothing is sent while the driver does not answer; whoever logs does not wait."""
    go = threading.Event()

    def connect(route: Route, worker: str) -> transport.DriverLink | None:
        assert go.wait(10)
        return transport.connect(route, worker)

    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route, connect)
        for number in range(MAX_LINES + 1_500):
            channel.log(entry(f"line {number}"))
        channel.leave_out(1_000_000)
        go.set()
        server.expect(*channel.messages_sent())
        assert server.settle()
        lines = len(messages(heard))
        assert lines >= MAX_LINES
        assert lines + sum(frame.left_out for _, frame in heard) == (MAX_LINES + 1_500 + 1_000_000)
        channel.close()


def test_without_a_way_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    channel = Backchannel(Route(job_id="job"))
    channel.log(entry("to nobody"))
    channel.leave_out(3)
    assert channel.messages_sent() == ("", 0)
    text = capsys.readouterr().err
    assert "INFO: to nobody\n" in text
    assert "3 log lines were dropped" in text


def test_where_the_driver_does_not_answer_files_are_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: Heard = []
    with socket.socket() as free:
        free.bind(LOOPBACK)
        closed = free.getsockname()
    with serving("files", tmp_path, heard) as server:
        route = Route(
            job_id="job", token=server.route.token, address=closed, folder=server.route.folder
        )
        channel = Backchannel(route)
        channel.log(entry("by file"))
        server.expect(*channel.messages_sent())
        assert server.settle()
        assert messages(heard) == ["by file"]
        channel.close()
    assert "the driver does not answer at 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["socket", "files"])
def test_a_way_that_breaks_loses_no_later_line(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    heard: Heard = []
    with serving(way, folder, heard) as server:
        channel = Backchannel(server.route)
        channel.log(entry("before"))
        server.expect(*channel.messages_sent())
        assert server.settle()
    if way == "files":
        folder.rename(tmp_path / "gone")

    def sent_nothing() -> bool:
        channel.log(entry("after"))
        return channel.messages_sent() == ("", 0)

    until(sent_nothing)
    until(lambda: "INFO: after" in capsys.readouterr().err)
    assert messages(heard)[0] == "before"


def test_strangers_are_turned_away(tmp_path: Path) -> None:
    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        assert server.route.address is not None
        for hello in (
            framed(WorkerFrame(token="guessed", worker="thief").SerializeToString()),
            framed(WorkerFrame(worker="thief").SerializeToString()),
            framed(b"\xff\xff\xff"),
            b"GET / HTTP/1.1\r\n\r\n",
            framed(WorkerFrame(token=server.route.token).SerializeToString()),
        ):
            with socket.create_connection(server.route.address, timeout=10) as stranger:
                stranger.sendall(hello + framed(WorkerFrame(messages_sent=9).SerializeToString()))
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        channel = Backchannel(server.route)
        channel.log(entry("still here"))
        server.expect(*channel.messages_sent())
        assert server.settle()
        channel.close()
    assert messages(heard) == ["still here"]
    assert "thief" not in {worker for worker, _ in heard}


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Route(job_id="job", token="secret"))


def test_the_end_waits_only_so_long_for_who_never_calls(tmp_path: Path) -> None:
    with serving("socket", tmp_path, []) as server:
        server.expect("nobody", 5)
        began = time.monotonic()
        assert not server.settle()
        assert time.monotonic() - began < 3


def test_a_port_that_is_taken_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(LOOPBACK) as taken:
        server = BackchannelServer("job", lambda *_: None, listen=taken.getsockname())
        assert server.route.address is None
        assert server.settle()
        server.close()
    assert "cannot listen at 127.0.0.1" in caplog.text


@pytest.mark.parametrize("way", ["socket", "files"])
def test_the_end_of_the_job_tears_down(way: str, tmp_path: Path) -> None:
    happened: list[str] = []

    def tear_down() -> None:
        channel.log(entry("last words"))
        happened.append("torn down")

    heard: Heard = []
    held = Callbacks()
    with serving(way, tmp_path, heard) as server:
        channel = Backchannel(server.route, on_end=tear_down)
        only_logs = Backchannel(server.route, on_end=lambda: happened.append("not wanted"))
        only_logs.log(entry("a line"))
        channel.hold(1, [held])
        channel.await_end()
        channel.await_end()
        for each in (channel, only_logs):
            until(lambda each=each: each.worker in {worker for worker, _ in heard})  # type: ignore[misc]
        assert happened == []
        assert server.end_job(60) == frozenset()
        assert happened == ["torn down"]
        assert held.happened == ["dropped"]
        assert sorted(messages(heard)) == ["a line", "last words"]
        assert server.end_job(60) == frozenset()
        assert happened == ["torn down"]
        late = Backchannel(server.route, on_end=lambda: happened.append("late"))
        late.await_end()
        until(lambda: happened == ["torn down", "late"])
        for each in (channel, only_logs, late):
            each.close()


def test_the_end_of_the_job_waits_for_no_worker_that_is_gone(tmp_path: Path) -> None:
    heard: Heard = []
    is_stuck, goes_on = threading.Event(), threading.Event()

    def stuck() -> None:
        is_stuck.set()
        goes_on.wait(60)

    links: list[transport.DriverLink] = []

    def connect(route: Route, worker: str) -> transport.DriverLink | None:
        link = transport.connect(route, worker)
        assert link is not None
        links.append(link)
        return link

    with serving("socket", tmp_path, heard) as server:
        gone = Backchannel(server.route, connect, on_end=stuck)
        slow = Backchannel(server.route, on_end=stuck)
        gone.await_end()
        slow.await_end()
        until(lambda: len({worker for worker, _ in heard}) == 2)
        links[0].close()
        assert server.end_job(0.2) == {slow.worker}
        assert is_stuck.wait(60)
        goes_on.set()
        assert server.end_job(60) == frozenset()
        slow.close()
        gone.close()

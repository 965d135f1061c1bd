"""Messages that are too long, or that nobody understands, end no connection."""

import socket
from pathlib import Path

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import WorkerFrame
from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.log_lines import STDERR
from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.backchannel.worker import Backchannel
from beam_spark_runner.core.framing import framed
from tests.unit.backchannel.served import LOOPBACK, Heard, entry, messages, serving, until


def test_long_lines_are_shortened_and_many_of_them_are_several_messages(tmp_path: Path) -> None:
    heard: Heard = []
    with serving("socket", tmp_path, heard) as server:
        channel = Backchannel(server.route)
        for _ in range(900):
            channel.log(entry("x" * 100_000))
        long = entry("y" * (65 << 20))
        long.custom_data["more"] = "z" * (65 << 20)
        channel.log(long)
        worker, sent = channel.messages_sent()
        server.expect(worker, sent)
        assert server.settle()
        *lines, last = messages(heard)
        assert len(lines) == 900
        assert {len(line) for line in lines} == {100_000}
        assert len(last) < 300_000
        assert "characters are left out" in last
        channel.close()


def test_a_message_that_cannot_be_used_is_the_only_one_that_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[str] = []

    def take(worker: str, frame: WorkerFrame) -> None:
        taken.extend(messages([(worker, frame)]))
        if len(taken) == 1:
            raise ValueError("one that nobody understands")

    server = BackchannelServer("job", take, listen=LOOPBACK, advertise="127.0.0.1")
    channel = Backchannel(server.route)
    channel.log(entry("first"))
    until(lambda: taken == ["first"])
    channel.log(entry("second"))
    server.expect(*channel.messages_sent())
    assert server.settle()
    assert taken == ["first", "second"]
    assert "cannot be used" in caplog.text
    channel.close()
    server.close()


@pytest.mark.parametrize(("severity", "name"), [(3, "INFO"), (99, "SEVERITY 99"), (-1, "-1")])
def test_lines_of_any_severity_are_printed(
    severity: int, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a number that this version of Beam does not know must not end the stream of lines."""
    STDERR.log(beam_fn_api_pb2.LogEntry(severity=severity, message="hello"))
    assert f"{name}: hello" in capsys.readouterr().err


@pytest.mark.parametrize("junk", [b"\xff" * 8, b"\0\0\0\2\xff\xff"], ids=["too long", "no message"])
def test_a_driver_that_sends_junk_accepts_nothing_more(
    junk: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Callbacks that wait for it are dropped, as when the driver has ended."""
    dropped: list[bool] = []

    class Callback:
        def run(self) -> None:
            raise AssertionError

        def drop(self) -> None:
            dropped.append(True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        channel = Backchannel(Route(job_id="job", token="token", address=address))
        channel.hold(1, [Callback()])
        driver, _ = listener.accept()
        driver.sendall(junk)
        until(lambda: bool(dropped))
        assert "are ignored" in capfd.readouterr().err
        driver.close()
        channel.close()


def test_a_stranger_with_any_token_ends_only_its_own_connection() -> None:
    """A token may be any text, though only ASCII can be compared as text."""
    server = BackchannelServer("job", lambda *_: None, listen=LOOPBACK, advertise="127.0.0.1")
    assert server.route.address is not None
    for token in ("\u68a2", "wrong", ""):
        with socket.create_connection(server.route.address) as stranger:
            stranger.sendall(framed(WorkerFrame(token=token, worker="w").SerializeToString()))
            assert stranger.recv(1) == b""
    channel = Backchannel(server.route)
    channel.log(entry("hello"))
    server.expect(*channel.messages_sent())
    assert server.settle()
    channel.close()
    server.close()

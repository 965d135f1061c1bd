"""Why a job server does not answer, and whether waiting for it may help."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.client import reaching
from beam_spark_runner.job.client.reaching import reason_of_silence, wait_for_server
from beam_spark_runner.options.server_access import ClientAccess

SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
ALERT = b"\x15\x03\x03\x00\x02\x02\x46"


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """Answer to the first bytes of each connection, then close it; None: stay silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as silent:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    if answer is None:
                        silent.enter_context(connection)
                        continue
                    with connection:
                        connection.recv(1 << 10)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_answers_has_no_reason_of_silence() -> None:
    with answering(SETTINGS) as endpoint:
        assert reason_of_silence(endpoint, ClientAccess()) is None


def test_reasons_of_silence_that_may_change_are_said() -> None:
    with answering(b"") as endpoint:
        assert reason_of_silence(endpoint, ClientAccess()) == "the connection is closed"
    assert reason_of_silence(endpoint, ClientAccess()) == "connection refused"
    nobody = reason_of_silence("no-such-host.invalid:8099", ClientAccess())
    assert nobody == "the name no-such-host.invalid is not known"


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "_ANSWERS_WITHIN_S", 0.05)
    with answering(None) as endpoint:
        assert reason_of_silence(endpoint, ClientAccess()) == "nothing comes back"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ALERT, "--job_server_ca: .* uses TLS: name a PEM file"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "--job_endpoint: .* is no job server"),
        (b"220 mail\r\n", "--job_endpoint: .* is no job server"),
    ],
)
def test_what_waiting_does_not_change(answer: bytes, problem: str) -> None:
    def never(_: float) -> None:
        raise AssertionError("it must not wait")

    with answering(answer) as endpoint, pytest.raises(OptionsError, match=problem):
        wait_for_server(endpoint, ClientAccess(), 60, never)


@pytest.mark.parametrize("endpoint", ["unix:/tmp/socket", "localhost", "dns:///host:port"])
def test_only_grpc_knows_other_forms_of_endpoints(endpoint: str) -> None:
    assert reason_of_silence(endpoint, ClientAccess()) is None


def test_a_server_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    assert reason_of_silence("no-such-host.invalid:8099", ClientAccess()) is None
    monkeypatch.setenv("no_proxy", "no-such-host.invalid")
    assert reason_of_silence("no-such-host.invalid:8099", ClientAccess()) is not None


def test_nobody_answers_in_time(caplog: pytest.LogCaptureFixture) -> None:
    with answering(b"") as endpoint:
        pass
    with pytest.raises(OptionsError) as raised:
        wait_for_server(endpoint, ClientAccess(), 0)
    port = endpoint.rpartition(":")[2]
    assert str(raised.value) == (
        f"--job_endpoint: no job server answers at {endpoint} (connection refused), after 0 s. "
        f"Start one (python -m beam_spark_runner --job_port={port}), or correct the option"
    )


def test_waiting_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with answering(b"") as endpoint:
        pass
    looks = []

    def look(_: float) -> None:
        looks.append(len(caplog.records))
        if len(looks) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait_for_server(endpoint, ClientAccess(), 60, look)
    assert looks == [1, 1, 1]

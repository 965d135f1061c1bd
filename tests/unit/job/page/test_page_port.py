"""The port at which the page is served."""

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.page import page_protocol
from beam_spark_runner.job.page.page_port import PagePort
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.options.page_address import PageAddress
from beam_spark_runner.options.server_access import ServerAccess
from tests.unit.job.page.observed import FixedJobs, stream


class Shown:
    """Jobs of which only records are known."""

    def all(self) -> Sequence[ShownJob]:
        return [*FixedJobs(stream("7")).jobs_by_id().values()]

    def spark_url(self) -> str | None:
        return None


def test_it_serves_until_it_is_closed() -> None:
    before = threading.active_count()
    port = PagePort(PageAddress(0), Shown(), "Jobs", None)
    try:
        assert port.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{port.url}jobs/7", timeout=30) as answer:
            text = answer.read().decode()
            assert "server" not in answer.headers
        assert "It starts." in text
    finally:
        port.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(port.url, timeout=30)
    assert threading.active_count() <= before + 1  # a thread of the pool may be about to end


def test_silent_connections_and_too_many_of_them_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_protocol, "SILENT_FOR_S", 0.2)
    monkeypatch.setattr(page_protocol, "MAX_CONNECTIONS", 2)
    port = PagePort(PageAddress(0), Shown(), "Jobs", None)
    address = ("127.0.0.1", int(port.url.rpartition(":")[2].strip("/")))
    try:
        with contextlib.ExitStack() as sockets:
            silent = [
                sockets.enter_context(socket.create_connection(address, timeout=30))
                for _ in range(3)
            ]
            silent[0].sendall(b"GET / HTTP/1.1\r\nHost: 127")
            for each in silent:
                with contextlib.suppress(ConnectionResetError):
                    assert each.recv(1) == b""
        with urllib.request.urlopen(f"{port.url}jobs/7", timeout=30) as answer:
            assert answer.status == 200
    finally:
        port.close()


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        with pytest.raises(OptionsError, match=rf"--job_page_port: cannot listen at .*:{number}"):
            PagePort(PageAddress(number), Shown(), "Jobs", None)


def test_tls_is_that_of_the_job_server(tmp_path: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    import ssl

    context = ssl.create_default_context()
    ca.configure_trust(context)
    access = ServerAccess(cert=str(cert), key=str(key))
    port = PagePort(PageAddress(0), Shown(), "Jobs", None, access)
    try:
        assert port.url.startswith("https://")
        with urllib.request.urlopen(port.url, timeout=30, context=context) as answer:
            assert "Secure" in answer.headers["set-cookie"]
    finally:
        port.close()

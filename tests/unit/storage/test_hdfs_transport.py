"""How requests reach HDFS: over HTTPS, with Kerberos, and with which timeouts."""

import io
import json
import socket
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from requests.auth import HTTPBasicAuth

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.storage import webhdfs, webhdfs_http
from beam_spark_runner.storage.folder_at import settings_of_tasks
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.webhdfs import WebHdfs
from beam_spark_runner.storage.webhdfs_http import HdfsError, HdfsHttp, SilentError
from tests.unit.state.scripted_hdfs import (
    FOLDER,
    ScriptedHdfs,
    breaks_off,
    does_it_and_hangs_up,
    hangs_up,
    leads_to,
    refuses,
    unused_port,
)

URL = f"hdfs://127.0.0.1:8020{FOLDER}"
SECURE = (("hdfs_https", "true"), ("hdfs_user", "beam"))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def secure(authority: trustme.CA) -> Iterator[ScriptedHdfs]:
    with ScriptedHdfs(tls_for(authority, "127.0.0.1")).serving() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


def tls_for(authority: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return context


def folder_of(port: int) -> HdfsFolder:
    return HdfsFolder(URL, (*SECURE, ("hdfs_port", str(port))))


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_files_over_https(
    secure: ScriptedHdfs, ca: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, ca)
    folder = folder_of(secure.port)
    content = bytes(range(256)) * 20_000  # some pieces
    assert folder.create("a", content)
    assert not folder.create("a", b"two")
    assert folder.read("a") == content
    assert list(folder.names()) == ["a"]
    assert secure.users == {"beam"}


def test_what_is_lost_over_https_is_noticed(
    secure: ScriptedHdfs, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ca)
    folder = folder_of(secure.port)
    assert folder.create("a", bytes(1000))
    secure.wrong["READ"].append(breaks_off)
    with pytest.raises(HdfsError, match="500 of 1000 bytes were received of"):
        folder.read("a")
    secure.wrong["RENAME"].append(does_it_and_hangs_up)
    with pytest.raises(HdfsError, match="did not answer"):
        folder.create("b", b"")
    assert not folder.create("b", b"")
    secure.wrong["LISTSTATUS"].append(hangs_up)
    with pytest.raises(HdfsError, match="did not answer"):
        folder.names()


def test_a_certificate_of_an_unknown_ca(
    secure: ScriptedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = r"no TLS connection to 127\.0\.0\.1:\d+ .*certificate verify failed.*REQUESTS_CA"
    with pytest.raises(HdfsError, match=problem):
        folder_of(secure.port).names()
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    with pytest.raises(HdfsError, match=problem):
        folder_of(secure.port).names()
    assert secure.asked == []


def test_a_certificate_for_another_host(
    authority: trustme.CA, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ca)
    with (
        ScriptedHdfs(tls_for(authority, "namenode.example")).serving() as other,
        pytest.raises(HdfsError, match=r"no TLS connection to .*IP address mismatch"),
    ):
        folder_of(other.port).names()
    assert other.asked == []


def test_files_of_cas_that_are_none(
    secure: ScriptedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")
    with pytest.raises(HdfsError, match=r"missing: SSL_CERT_FILE is /no/such\.pem"):
        folder_of(secure.port).names()
    (tmp_path / "empty.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    with pytest.raises(HdfsError, match=r"no TLS connection to .* SSL_CERT_FILE in the environ"):
        folder_of(secure.port).names()


def test_one_side_speaks_https_and_the_other_http(
    secure: ScriptedHdfs, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ca)
    with (
        ScriptedHdfs().serving() as plain,
        pytest.raises(HdfsError, match=r"no TLS connection to .* \(see --hdfs_https\)"),
    ):
        folder_of(plain.port).names()
    settings = ("hdfs_port", str(secure.port)), ("hdfs_user", "beam")
    with pytest.raises(HdfsError, match=r"did not answer.*with --hdfs_https"):
        HdfsFolder(URL, settings).names()


def test_no_redirection_leads_out_of_https(
    secure: ScriptedHdfs, ca: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ca)
    with ScriptedHdfs().serving() as plain:
        secure.wrong["CREATE"].append(leads_to(plain.url))
        with pytest.raises(HdfsError, match=r"http://.* is not supported, only https://"):
            folder_of(secure.port).create("a", b"")
    assert plain.asked == []


def test_the_default_port_depends_on_the_protocol() -> None:
    for settings, port in ((SECURE, 9871), (SECURE[1:], 9870)):
        with pytest.raises(HdfsError, match=rf"could not reach no-such-host\.invalid:{port}"):
            HdfsFolder("hdfs://no-such-host.invalid/a", settings).names()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ScriptedHdfs().serving() as hdfs:
        settings = ("hdfs_port", str(hdfs.port)), ("hdfs_user", "beam")
        assert list(HdfsFolder(URL, settings).names()) == []


@pytest.fixture
def hdfs() -> Iterator[ScriptedHdfs]:
    with ScriptedHdfs().serving() as running:
        yield running


@pytest.fixture
def authenticated(hdfs: ScriptedHdfs) -> WebHdfs:
    def new_auth() -> HTTPBasicAuth:
        return HTTPBasicAuth("a", "b")

    return WebHdfs(["127.0.0.1"], hdfs.port, "", new_auth=new_auth)


def test_a_token_is_asked_for_once_and_replaces_the_user(
    authenticated: WebHdfs, hdfs: ScriptedHdfs
) -> None:
    authenticated.write(f"{FOLDER}/a", io.BytesIO(b"one"))
    assert hdfs.files == {f"{FOLDER}/a": b"one"}
    assert hdfs.users == {None}
    assert list(hdfs.credentials.items()) == [
        ("GETDELEGATIONTOKEN", "Basic YTpi"),
        *((op, "T1") for op in ("CREATE", "WRITE", "GETFILESTATUS")),
    ]


def test_a_token_is_replaced_when_it_is_old(
    authenticated: WebHdfs, hdfs: ScriptedHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhdfs, "_TOKEN_S", 0)
    for token in "T1", "T2":
        authenticated.files(FOLDER)
        assert hdfs.credentials["LISTSTATUS"] == token


def test_a_token_that_is_not_accepted_is_replaced_once(
    authenticated: WebHdfs, hdfs: ScriptedHdfs
) -> None:
    expired = "org.apache.hadoop.security.token.SecretManager$InvalidToken: token (1) is expired"
    refused = refuses(403, "SecurityException", expired)
    hdfs.wrong["DELETE"].append(refused)
    authenticated.delete(f"{FOLDER}/a")
    assert hdfs.asked == ["GETDELEGATIONTOKEN", "DELETE"] * 2
    assert hdfs.credentials["DELETE"] == "T2"
    hdfs.wrong["DELETE"] += [refused, refused]
    with pytest.raises(HdfsError, match=r"does not accept its token: .* is expired"):
        authenticated.delete(f"{FOLDER}/a")
    authenticated.delete(f"{FOLDER}/a")


def test_a_token_is_in_no_traceback(authenticated: WebHdfs, hdfs: ScriptedHdfs) -> None:
    hdfs.wrong["OPEN"].append(leads_to(f"http://127.0.0.1:{unused_port()}"))
    hdfs.wrong["OPEN"] *= 3
    with pytest.raises(HdfsError, match="could not reach") as raised:
        authenticated.read(f"{FOLDER}/a", io.BytesIO())
    assert "delegation=" not in "".join(traceback.format_exception(raised.value))


def test_kerberos_without_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "beam_spark_runner.storage.kerberos", raising=False)
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OptionsError, match=r"--hdfs_kerberos: .*'beam-spark-runner\[kerberos\]'"):
        HdfsFolder(URL, (("hdfs_kerberos", "true"),)).names()


def test_tasks_have_the_user_of_their_ticket() -> None:
    settings = (("hdfs_kerberos", "true"),)
    assert settings_of_tasks("hdfs://n/a", settings) == settings


class SlowDatanode:
    """Reads the content of one request after a pause, and answers with an error or not."""

    def __init__(self, pause_s: float, answer: bytes) -> None:
        self._pause_s, self._answer = pause_s, answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/a"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._server, self._server.accept()[0] as connection:
            time.sleep(self._pause_s)
            connection.sendall(self._answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 20):
                pass


def test_a_datanode_may_pause_longer_than_it_may_take_to_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk may be slow; content that it does not read fills the buffers of the connection."""
    monkeypatch.setattr(webhdfs_http, "_CONNECT_S", 0.1)
    http, content = HdfsHttp(is_secure=False), bytes(64 << 20)
    datanode = SlowDatanode(0.5, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
    with http.answer("PUT", datanode.url, "", io.BytesIO(content)) as answer:
        assert answer.status_code == 201
    monkeypatch.setattr(webhdfs_http, "_ANSWER_S", 0.1)
    with (
        pytest.raises(SilentError, match="did not answer: TimeoutError"),
        http.answer("PUT", SlowDatanode(0.5, b"").url, "", io.BytesIO(content)),
    ):
        pass


def test_a_refusal_is_read_although_the_content_was_not() -> None:
    refused = {"exception": "FileAlreadyExistsException", "message": "\n/a exists\n\tat b.C(D)"}
    said = json.dumps({"RemoteException": refused}).encode()
    datanode = SlowDatanode(0, b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % len(said) + said)
    http = HdfsHttp(is_secure=False)
    with (
        pytest.raises(FileExistsError, match=r"^/a exists$"),
        http.answer("PUT", datanode.url, "", io.BytesIO(bytes(64 << 20))),
    ):
        pass

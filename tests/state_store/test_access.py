"""Who may use a server: users, passwords that change, certificates, and commands."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import Chunk, StateStoreError
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.redis_checks import check_server
from beam_spark_runner.state.remote.redis_client import client_of
from tests.harness.processes import lasting_port
from tests.state_store.clusters import redis_cluster
from tests.state_store.servers import RedisServer, redis_server, server_with_tls

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


def _set_user(server: RedisServer, *rules: str) -> None:
    client: Any = server.client()
    client.execute_command("ACL", "SETUSER", "me", "reset", "on", *rules)


def test_a_password_that_changes_is_read_again(server: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    _set_user(server, ">first", "~bsr:*", "+@all")
    url = server.url.replace("unix://", "unix://me@")
    address = StateStoreAddress(url, str(file))
    store = key_store(address, "n", 0)
    store.open([5])
    _set_user(server, ">second", "~bsr:*", "+@all")
    server.client().client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StateStoreError):
        store.open([5])
    file.write_text("second\n")
    (opened,) = store.open([5])
    assert not any(opened.sizes.values())
    file.unlink()
    server.client().client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StateStoreError, match="password cannot be read"):
        store.open([5])


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        pytest.param(("-evalsha", "-hscan"), "HSCAN, EVALSHA", id="scripts and scans"),
        pytest.param(("-script",), "SCRIPT LOAD", id="loading scripts"),
        pytest.param(("-info",), "the command INFO", id="what the server is"),
        pytest.param(("-@write",), "HSET, HSETNX, HDEL, ZADD", id="all that writes"),
    ],
)
def test_commands_that_are_forbidden_are_named(
    rules: tuple[str, ...], missing: str, server: RedisServer, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    _set_user(server, ">secret", "~bsr:*", "+@all", *rules)
    address = StateStoreAddress(server.url.replace("unix://", "unix://me@"), str(file))
    with pytest.raises(OptionsError, match=f"does not allow its user {missing}"):
        check_server(address)
    assert server.client().keys("*") == []


def test_renamed_commands_are_named(tmp_path: Path) -> None:
    settings = "--rename-command", "HSCAN", "hidden"
    with (
        redis_server(tmp_path, *settings) as server,
        pytest.raises(OptionsError, match="does not allow its user HSCAN;"),
    ):
        check_server(StateStoreAddress(server.url))


def test_a_user_of_what_the_documentation_names_is_enough(
    server: RedisServer, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("secret")
    _set_user(server, ">secret", "~bsr:*", "+@all", "-@admin", "-@dangerous", "+info")
    check_server(StateStoreAddress(server.url.replace("unix://", "unix://me@"), str(file)))
    assert server.client().keys("*") == []


def test_tls_with_a_user(tmp_path: Path) -> None:
    program = server_with_tls()
    if program is None:
        pytest.skip("no server with TLS is installed")
    authority, certificate = _certificate(tmp_path)
    port = lasting_port()
    settings = (
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(tmp_path / "key.pem")),
        *("--tls-ca-cert-file", str(authority)),
    )
    file = tmp_path / "password"
    file.write_text("secret")
    with redis_server(tmp_path, *settings, program=program) as server:
        _set_user(server, ">secret", "~bsr:*", "+@all")
        url = f"rediss://me@localhost:{port}/0"
        trusted = StateStoreAddress(f"{url}?ssl_ca_certs={authority}", str(file))
        check_server(trusted)
        key_store(trusted, "n", 0).open([5])
        assert client_of(trusted).acl_whoami() == "me"
        for untrusted in (url, f"rediss://me@127.0.0.2:{port}/0?ssl_ca_certs={authority}"):
            with pytest.raises(StateStoreError, match=r"(?i)certificate verify failed"):
                check_server(StateStoreAddress(untrusted, str(file)))
        with pytest.raises(StateStoreError):
            check_server(StateStoreAddress(f"redis://me@localhost:{port}/0", str(file)))


def test_a_cluster_with_tls_and_a_user(tmp_path: Path) -> None:
    """Its other nodes are trusted as the one is that the URL names."""
    program = server_with_tls()
    if program is None:
        pytest.skip("no server with TLS is installed")
    authority, certificate = _certificate(tmp_path)
    settings = (
        *("--tls-cluster", "yes", "--tls-replication", "yes", "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(tmp_path / "key.pem")),
        *("--tls-ca-cert-file", str(authority)),
    )
    file = tmp_path / "password"
    file.write_text("secret")
    with redis_cluster(tmp_path, *settings, program=program, has_tls=True) as cluster:
        for node in cluster.nodes:
            _set_user(node, ">secret", "~bsr:*", "+@all")
        url = cluster.url.replace("//", "//me@")
        trusted = StateStoreAddress(f"{url}?ssl_ca_certs={authority}", str(file))
        check_server(trusted)
        groups = range(30)
        version = ShardVersion(1, 1)
        chunks = [Chunk(each, None, version, True, 0, True, []) for each in groups]
        assert all(key_store(trusted, "n", 0).apply(chunks))
        opened = key_store(trusted, "n", 0).open(groups)
        assert {each.tag.complete for each in opened} == {DeltaId(1, 1)}
        assert all(node.client().keys("bsr:{n.*") for node in cluster.nodes)
        with pytest.raises(StateStoreError, match=r"(?i)certificate verify failed"):
            check_server(StateStoreAddress(url, str(file)))


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of this machine, which is its own authority; return it as both.

    Its names are ``localhost`` and ``127.0.0.1``.
    """
    certificate = folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, certificate

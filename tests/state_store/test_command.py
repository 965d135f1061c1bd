"""The command that lists and drops what pipelines have in a state store."""

from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import Change, Chunk, Structure
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from beam_spark_runner.state_store import main
from tests.state_store.servers import redis_server

pytestmark = pytest.mark.slow


def test_namespaces_are_listed_and_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis_server(tmp_path) as server:
        address, option = StateStoreAddress(server.url), f"--state_store={server.url}"
        for namespace, folder, job in (("aa", "/two", "clicks"), ("bb", "/one", "")):
            namespaces = RedisNamespaces(address, folder, job, 4)
            assert namespaces.claim(namespace)
            namespaces.note(namespace, 7)
            version = ShardVersion(7, 1)
            change = Change(Structure.PACKS, b"key", b"pack")
            chunks = [Chunk(group, None, version, True, 0, True, [change]) for group in (0, 3)]
            assert all(key_store(address, namespace, 1).apply(chunks))
        assert main([option, "list"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "bb  /one after epoch 7",
            "aa  /two after epoch 7, job clicks",
        ]
        assert main([option, "drop", "aa"]) == 0
        assert capsys.readouterr().out == "dropped 2 groups of keys\n"
        assert main([option, "list"]) == 0
        assert capsys.readouterr().out == "bb  /one after epoch 7\n"
        keys: Any = server.client().keys("*")
        left = {key for key in keys if not key.startswith(b"bsr:{bb.")}
        assert left == {b"bsr:owners", b"bsr:epochs"}
        assert main([option, "drop", "aa"]) == 1
        assert "there is no namespace aa" in capsys.readouterr().err
    assert main([option, "list"]) == 1
    assert "cannot be read or written" in capsys.readouterr().err
    assert main(["--state_store=http://host", "list"]) == 2
    assert "http is no URL" in capsys.readouterr().err

"""Checkpoints in an HDFS that speaks only HTTPS."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.savepoint import main
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.webhdfs_http import HdfsError
from integration.checkpoint_store import environment_of, session_for
from integration.hdfs_over_https import HdfsOverHttps, start_hdfs_over_https
from integration.pipelines import counters
from integration.running import run
from integration.streams import KEYS, windows_of_state

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsOverHttps]:
    with start_hdfs_over_https(tmp_path_factory.mktemp("hdfs")) as running, environment_of(running):
        yield running


@pytest.fixture(scope="module")
def session(hdfs: HdfsOverHttps) -> Iterator[Any]:
    with session_for(hdfs) as running:
        yield running


def test_files_are_created_once_and_read(hdfs: HdfsOverHttps) -> None:
    folder = HdfsFolder(hdfs.folder("files, 100 %"), hdfs.settings)
    folder.make()
    content = os.urandom(20 << 20)
    assert folder.create("large", content)
    assert not folder.create("large", b"")
    assert folder.create("empty", b"")
    assert folder.read("large") == content
    assert folder.read("empty") == b""
    folder.delete(["large"])
    assert list(folder.names()) == ["empty"]


def test_what_is_wrong_is_named(hdfs: HdfsOverHttps, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = HdfsFolder(hdfs.folder("a"), hdfs.settings)
    http = tuple(each for each in hdfs.settings if each[0] != "hdfs_https")
    with pytest.raises(HdfsError, match="with --hdfs_https"):
        HdfsFolder(hdfs.folder("a"), http).names()
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with pytest.raises(HdfsError, match=r"certificate verify failed.*REQUESTS_CA_BUNDLE"):
        folder.names()


def test_a_pipeline_and_a_savepoint(
    session: Any, hdfs: HdfsOverHttps, capsys: pytest.CaptureFixture[str]
) -> None:
    done, saved = hdfs.folder("done"), hdfs.folder("saved")
    flags = f"--checkpoint_dir={done}", *hdfs.checkpoint_flags
    assert counters(run(session, windows_of_state, *flags)) == {"elements": 3 * KEYS}
    assert main([*flags, f"--savepoint_path={saved}"]) == 0
    assert main(["verify", saved, *hdfs.checkpoint_flags]) == 0
    assert "is whole" in capsys.readouterr().out
    with pytest.raises(CheckpointStorageError, match="with --hdfs_https"):
        run(session, windows_of_state, *flags[:-1])

"""Checkpoints in an HDFS in secure mode. ``make integration-kerberos`` installs what this needs."""

import io
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.savepoint import main
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.kerberos import Ticket
from beam_spark_runner.storage.webhdfs import WebHdfs
from beam_spark_runner.storage.webhdfs_http import HdfsError
from integration.checkpoint_store import session_for
from integration.hdfs_server import USER
from integration.hdfs_with_kerberos import HOST, HdfsWithKerberos, start_hdfs_with_kerberos
from integration.pipelines import counters
from integration.running import run
from integration.streams import KEYS, windows_of_state
from tests.unit.state.many_creators import created_by_many
from tests.unit.state.scripted_hdfs import FOLDER, ScriptedHdfs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

NO_TICKET = "there is no valid Kerberos ticket: run kinit, or set KRB5_CLIENT_KTNAME"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsWithKerberos]:
    with start_hdfs_with_kerberos(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="module")
def session(hdfs: HdfsWithKerberos) -> Iterator[Any]:
    with session_for(hdfs) as running:
        yield running


@pytest.fixture
def folder(hdfs: HdfsWithKerberos, tmp_path: Path) -> HdfsFolder:
    made = HdfsFolder(hdfs.folder(f"{tmp_path.name}, 100 %"), hdfs.settings)
    made.make()
    return made


@pytest.fixture
def no_ticket(folder: HdfsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder has been made before."""
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


def kinit(keytab: Path, principal: str, *arguments: str) -> None:
    subprocess.run(["kinit", "-k", "-t", str(keytab), *arguments, principal], check=True)


def test_files_with_the_keys_of_a_file(folder: HdfsFolder) -> None:
    content = os.urandom(20 << 20)
    folder.put_content("large", io.BytesIO(content))
    assert folder.create("empty", b"")
    assert not folder.create("empty", b"one")
    assert folder.read("large") == content
    assert folder.read("empty") == b""
    with pytest.raises(FileNotFoundError, match="could not read gone"):
        folder.read("gone")
    folder.delete(["large", "missing"])
    assert list(folder.names()) == ["empty"]
    folder.remove()
    assert not folder.exists()


def test_of_many_that_create_one_file_one_does(folder: HdfsFolder) -> None:
    assert created_by_many(folder, "a") == [folder.read("a")]
    assert list(folder.names()) == ["a"]


@pytest.mark.usefixtures("no_ticket")
def test_tickets_of_kinit(hdfs: HdfsWithKerberos, folder: HdfsFolder) -> None:
    other = HdfsFolder(f"{folder.url}/other", hdfs.settings)  # which has no token yet
    with pytest.raises(HdfsError, match=f"could not make it: {NO_TICKET}"):
        other.make()
    kinit(hdfs.keytab, USER, "-l", "5s")
    time.sleep(6)
    with pytest.raises(HdfsError, match=NO_TICKET):
        other.make()
    kinit(hdfs.keytab, USER)
    other.make()
    assert list(other.names()) == []


def test_a_token_that_was_cancelled_is_replaced(hdfs: HdfsWithKerberos) -> None:
    files = WebHdfs([HOST], hdfs.web_port, "", is_secure=True, new_auth=Ticket)
    files.make_folder(f"/{USER}/of a token")
    before = files._token
    assert files.files(f"/{USER}/of a token") == []
    assert files._token == before
    hdfs.cancel(before[0])
    files.write(f"/{USER}/of a token/a", io.BytesIO(b"one"))
    assert files.files(f"/{USER}/of a token") == ["a"]
    assert files._token != before


@pytest.mark.usefixtures("no_ticket")
def test_another_user_is_refused(hdfs: HdfsWithKerberos, folder: HdfsFolder) -> None:
    """Whatever name is given: that of the ticket counts."""
    settings = (*hdfs.settings, ("hdfs_user", USER))
    other = HdfsFolder(folder.url, settings)
    kinit(hdfs.realm.keytab("stranger"), "stranger")
    with pytest.raises(HdfsError, match=r"HDFS refuses it to this user.*user=stranger"):
        other.create("a", b"")


def test_hdfs_demands_kerberos(hdfs: HdfsWithKerberos, folder: HdfsFolder) -> None:
    settings = tuple(each for each in hdfs.settings if each[0] != "hdfs_kerberos")
    with pytest.raises(HdfsError, match=r"demands Kerberos \(see --hdfs_kerberos\)"):
        HdfsFolder(folder.url, settings).names()


def test_servers_that_kerberos_does_not_know(hdfs: HdfsWithKerberos, folder: HdfsFolder) -> None:
    with pytest.raises(HdfsError, match=r"Kerberos has no ticket for the server: .*127\.0\.0\.1"):
        HdfsFolder(folder.url, (*hdfs.settings, ("hdfs_host", "127.0.0.1"))).names()
    with ScriptedHdfs().serving() as other:
        settings = (("hdfs_port", str(other.port)), ("hdfs_kerberos", "true"))
        with pytest.raises(HdfsError, match=r"localhost:\d+ did not prove by Kerberos who it is"):
            HdfsFolder(f"hdfs://{HOST}{FOLDER}", settings).names()


def test_a_pipeline_and_a_savepoint(
    session: Any, hdfs: HdfsWithKerberos, capsys: pytest.CaptureFixture[str]
) -> None:
    done, saved = hdfs.folder("done"), hdfs.folder("saved")
    flags = f"--checkpoint_dir={done}", *hdfs.checkpoint_flags
    assert counters(run(session, windows_of_state, *flags)) == {"elements": 3 * KEYS}
    assert main([*flags, f"--savepoint_path={saved}"]) == 0
    assert main(["verify", saved, *hdfs.checkpoint_flags]) == 0
    assert "is whole" in capsys.readouterr().out


@pytest.mark.usefixtures("no_ticket")
def test_a_pipeline_without_a_ticket_says_so(session: Any, hdfs: HdfsWithKerberos) -> None:
    flags = f"--checkpoint_dir={hdfs.folder('refused')}", *hdfs.checkpoint_flags
    with pytest.raises(CheckpointStorageError, match=NO_TICKET):
        run(session, windows_of_state, *flags)

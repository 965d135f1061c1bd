"""A folder of HDFS, over a server that answers as WebHDFS does, and sometimes wrongly."""

import getpass
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.storage.folder_at import folder_at, settings_of_tasks
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.object_folder import ObjectFolder
from beam_spark_runner.storage.webhdfs import WebHdfs
from beam_spark_runner.storage.webhdfs_http import HdfsError
from tests.unit.state.many_creators import created_by_many
from tests.unit.state.scripted_hdfs import (
    FOLDER,
    Answer,
    ScriptedHdfs,
    breaks_off,
    does_it_and_hangs_up,
    hangs_up,
    leads_to,
    loses_half,
    refuses,
    says,
    speaks_another_protocol,
    unused_port,
)

URL = f"hdfs://127.0.0.1:8020{FOLDER}"
STANDBY = refuses(403, "StandbyException", "Operation category READ is not supported")


@pytest.fixture
def hdfs() -> Iterator[ScriptedHdfs]:
    with ScriptedHdfs().serving() as running:
        yield running


@pytest.fixture
def folder(hdfs: ScriptedHdfs) -> HdfsFolder:
    return HdfsFolder(URL, (("hdfs_port", str(hdfs.port)), ("hdfs_user", "beam")))


def test_files_are_created_once_and_never_replaced(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    assert folder.create("a", b"one")
    assert not folder.create("a", b"two")
    assert folder.read("a") == b"one"
    assert set(hdfs.files) == {f"{FOLDER}/a"}
    assert hdfs.users == {"beam"}


def test_of_many_that_create_one_file_one_does(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    assert created_by_many(folder, "a") == [folder.read("a")]
    assert list(folder.names()) == ["a"]


def test_what_is_put_is_found_until_it_is_deleted(folder: HdfsFolder, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000  # some pieces
    folder.put_content("large", io.BytesIO(content))
    (tmp_path / "local").write_bytes(b"small")
    folder.put("small", tmp_path / "local")
    folder.put_content("empty", io.BytesIO())
    assert sorted(folder.names()) == ["empty", "large", "small"]
    with folder.open("large") as opened:
        assert opened.read() == content
    with folder.local("small") as path:
        assert Path(path).read_bytes() == b"small"
    assert not Path(path).exists()
    assert folder.read("empty") == b""
    folder.delete(["large", "missing", "small"])
    assert list(folder.names()) == ["empty"]


def test_a_file_that_is_put_again_stays(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    """Of a savepoint's copy that was broken off; whatever has its final name is whole."""
    for _ in range(2):
        folder.put_content("a", io.BytesIO(b"one"))
    assert hdfs.files == {f"{FOLDER}/a": b"one"}


def test_content_is_stored_from_where_it_is(folder: HdfsFolder) -> None:
    content = io.BytesIO(b"not this, but this")
    content.seek(10)
    folder.put_content("a", content)
    assert folder.read("a") == b"but this"


def test_the_folder_is_made_by_name_only(hdfs: ScriptedHdfs) -> None:
    settings = ("hdfs_port", str(hdfs.port)), ("hdfs_user", "beam")
    folder = HdfsFolder("hdfs://127.0.0.1/new", settings)
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match="could not list it"):
        folder.names()
    with pytest.raises(FileNotFoundError, match="could not create a: Parent directory"):
        folder.create("a", b"")
    folder.make()
    assert folder.exists()
    assert folder.create("a", b"")
    assert not HdfsFolder("hdfs://127.0.0.1/new/a", settings).exists()


def test_a_missing_file_is_an_error(folder: HdfsFolder) -> None:
    for ask in (folder.read, folder.open, lambda name: folder.local(name).__enter__()):
        with pytest.raises(FileNotFoundError, match=r"could not read gone: File .*100%/gone$"):
            ask("gone")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            refuses(403, "AccessControlException", "Permission denied: user=beam, access=WRITE"),
            r"refuses it to this user \(see --hdfs_user\): Permission denied: user=beam",
        ),
        (
            refuses(403, "SafeModeException", "Cannot create /a. Name node is in safe mode."),
            "the namenode is in safe mode, in which nothing can be changed",
        ),
        (
            refuses(403, "RetriableException", "SafeModeException: Name node is in safe mode."),
            "the namenode is in safe mode, in which nothing can be changed",
        ),
        (refuses(500, "IOException", "the disk\n\tat org.x"), r"it: the disk \(IOException\)$"),
        (STANDBY, "127.0.0.1:[0-9]+ is a namenode that is not active"),
        (
            says(404, b"It looks like you are making an HTTP request to a Hadoop IPC port."),
            r"what answers at 127.0.0.1:\d+ is not WebHDFS \(404 Not Found\); --hdfs_host and",
        ),
        (
            says(401, b"<html>", WWW_Authenticate="Negotiate"),
            r"127.0.0.1:\d+ demands Kerberos \(see --hdfs_kerberos\)",
        ),
        (hangs_up, r"127.0.0.1:\d+ did not answer; --hdfs_host and --hdfs_port are"),
        (speaks_another_protocol, r"at 127.0.0.1:\d+ does not speak HTTP; --hdfs_host and"),
        (says(200, b"<html>"), "the namenode did not redirect to a datanode, but answered 200"),
        (says(307, Location="https://a:1/b"), "https://a:1 is not supported, only http://"),
    ],
)
def test_what_the_namenode_refuses(
    folder: HdfsFolder, hdfs: ScriptedHdfs, answer: Answer, problem: str
) -> None:
    hdfs.wrong["CREATE"].append(answer)
    with pytest.raises(HdfsError, match=f"could not create a: .*{problem}"):
        folder.create("a", b"")
    assert folder.create("a", b"")


@pytest.mark.parametrize("operation", ["LISTSTATUS", "GETFILESTATUS", "MKDIRS"])
def test_an_answer_that_is_no_json(folder: HdfsFolder, hdfs: ScriptedHdfs, operation: str) -> None:
    hdfs.wrong[operation].append(says(200, b"<html>"))
    ask = {"LISTSTATUS": folder.names, "GETFILESTATUS": folder.exists, "MKDIRS": folder.make}
    with pytest.raises(HdfsError, match="an answer is not that of WebHDFS"):
        ask[operation]()


def test_a_folder_that_cannot_be_made(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    hdfs.wrong["MKDIRS"].append(says(200, b'{"boolean": false}'))
    with pytest.raises(HdfsError, match="could not make it: could not make /a folder"):
        folder.make()


def test_nobody_is_there() -> None:
    settings = ("hdfs_port", str(unused_port())), ("hdfs_user", "beam")
    with pytest.raises(HdfsError, match=r"list it: could not reach 127\.0\.0\.1:\d+: .*refused; "):
        HdfsFolder(URL, settings).names()
    with pytest.raises(HdfsError, match=r"could not reach no-such-host\.invalid:9870"):
        HdfsFolder("hdfs://no-such-host.invalid/a", settings[1:]).names()


def test_of_several_namenodes_the_active_one_is_asked(hdfs: ScriptedHdfs) -> None:
    """All have one port, so they are one server here: the first answer is the standby's."""
    settings = ("hdfs_host", "127.0.0.1, localhost"), ("hdfs_port", str(hdfs.port))
    folder = HdfsFolder(URL, (*settings, ("hdfs_user", "beam")))
    hdfs.wrong["LISTSTATUS"].append(STANDBY)
    assert list(folder.names()) == []
    assert hdfs.asked == ["LISTSTATUS"] * 2
    hdfs.wrong["LISTSTATUS"] += [STANDBY, STANDBY]
    with pytest.raises(HdfsError, match="not active"):
        folder.names()
    assert list(folder.names()) == []


def test_a_namenode_that_does_not_answer_is_left_for_another(hdfs: ScriptedHdfs) -> None:
    """It may have done what it was asked for: only questions are repeated at once."""
    settings = ("hdfs_host", "127.0.0.1, localhost"), ("hdfs_port", str(hdfs.port))
    files = WebHdfs(["127.0.0.1", "localhost"], hdfs.port, "beam")
    hdfs.wrong["LISTSTATUS"].append(hangs_up)
    assert list(HdfsFolder(URL, (*settings, ("hdfs_user", "beam"))).names()) == []
    hdfs.wrong["DELETE"].append(hangs_up)
    with pytest.raises(HdfsError, match=r"127\.0\.0\.1:\d+ did not answer"):
        files.delete("/a")
    hdfs.wrong["DELETE"].append(hangs_up)
    with pytest.raises(HdfsError, match=r"localhost:\d+ did not answer"):
        files.delete("/a")
    files.delete("/a")
    assert hdfs.asked == ["LISTSTATUS"] * 2 + ["DELETE"] * 3


@pytest.mark.parametrize("operation", ["CREATE", "OPEN"])
def test_a_datanode_that_is_gone(folder: HdfsFolder, hdfs: ScriptedHdfs, operation: str) -> None:
    folder.create("a", b"one")
    gone = leads_to(f"http://127.0.0.1:{unused_port()}")
    hdfs.wrong[operation] += [gone, gone]
    if operation == "OPEN":
        assert folder.read("a") == b"one"
    else:
        assert folder.create("b", b"two")
        assert folder.read("b") == b"two"
    hdfs.wrong[operation] += [gone] * 3
    with pytest.raises(
        HdfsError,
        match=r"could not reach .*; this is the address of a datanode that the namenode reports",
    ):
        folder.read("a") if operation == "OPEN" else folder.create("c", b"three")


def test_half_a_file_is_an_error_wherever_it_is_lost(
    folder: HdfsFolder, hdfs: ScriptedHdfs
) -> None:
    hdfs.wrong["WRITE"].append(loses_half)
    with pytest.raises(HdfsError, match="of 1000 bytes, 500 bytes arrived at"):
        folder.create("a", bytes(1000))
    assert hdfs.files == {}
    folder.create("a", bytes(1000))
    hdfs.wrong["READ"].append(breaks_off)
    with pytest.raises(HdfsError, match="500 of 1000 bytes were received of"):
        folder.read("a")


def test_a_lost_answer_is_an_error_and_the_file_is_whole(
    folder: HdfsFolder, hdfs: ScriptedHdfs
) -> None:
    """``recovery.commit`` then finds out whose file it is."""
    hdfs.wrong["RENAME"].append(does_it_and_hangs_up)
    with pytest.raises(HdfsError, match="did not answer"):
        folder.create("a", b"one")
    assert hdfs.files == {f"{FOLDER}/a": b"one"}
    assert not folder.create("a", b"one")


def test_nothing_is_left_of_what_failed(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    hdfs.wrong["RENAME"] += [hangs_up, hangs_up]
    with pytest.raises(HdfsError):
        folder.create("a", b"one")
    assert hdfs.files == {}
    hdfs.wrong["DELETE"].append(hangs_up)
    with pytest.raises(HdfsError, match="could not create a"):
        folder.create("a", b"one")
    (left,) = folder.names()
    assert left.startswith(".a.")


def test_a_server_that_says_in_json_whether_it_has_renamed(
    folder: HdfsFolder, hdfs: ScriptedHdfs
) -> None:
    """As HttpFS does, which does not know the option for it."""
    hdfs.files[f"{FOLDER}/a"] = b"another one"
    refused = says(200, b'{"boolean": false}')
    hdfs.wrong["RENAME"] += [refused, refused, says(200, b'{"boolean": true}')]
    assert not folder.create("a", b"one")
    with pytest.raises(HdfsError, match="could not rename"):
        folder.create("b", b"one")
    assert folder.create("c", b"one")


def test_a_server_that_sends_content_itself(folder: HdfsFolder, hdfs: ScriptedHdfs) -> None:
    """As HttpFS does."""
    hdfs.wrong["OPEN"].append(says(200, b"content"))
    assert folder.read("a") == b"content"


@pytest.mark.parametrize(
    ("url", "settings", "problem"),
    [
        ("hdfs:///a", {}, "--hdfs_host: must be given, since hdfs:///a has no host"),
        ("hdfs://n/a", {"hdfs_host": "http://n"}, "--hdfs_host: must be the name of a host"),
        ("hdfs://n/a", {"hdfs_host": "n:9870"}, "--hdfs_host: must be the name of a host"),
        ("hdfs://n/a", {"hdfs_host": "n,"}, "--hdfs_host: must be the name of a host"),
        ("hdfs://n/a", {"hdfs_port": "web"}, "--hdfs_port: must be the number of a port, not web"),
        ("hdfs://n/a", {"hdfs_port": "65536"}, "--hdfs_port: must be the number of a port"),
    ],
)
def test_wrong_settings(url: str, settings: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        HdfsFolder(url, tuple(settings.items())).names()


def test_tasks_write_as_the_driver_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    own = getpass.getuser()
    given = (("hdfs_port", "1"),)
    assert settings_of_tasks("s3a://box/a", given) == given
    assert settings_of_tasks("hdfs://n/a", given) == (*given, ("hdfs_user", own))
    monkeypatch.setenv("HADOOP_USER_NAME", "beam")
    assert settings_of_tasks("hdfs://n/a", ()) == (("hdfs_user", "beam"),)
    named = (("hdfs_user", "other"),)
    assert settings_of_tasks("hdfs://n/a", named) == named


def test_a_process_whose_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as any number."""

    def getuser() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr("getpass.getuser", getuser)
    with pytest.raises(OptionsError, match="--hdfs_user: must be given"):
        settings_of_tasks("hdfs://n/a", ())


@pytest.mark.parametrize(
    ("url", "kind"),
    [("hdfs://n/a", HdfsFolder), ("s3a://box/a", ObjectFolder), ("gs://box/a", ObjectFolder)],
)
def test_the_client_for_a_url(url: str, kind: type) -> None:
    settings = (("hdfs_host", "n"),)
    assert folder_at(url, settings, scratch="/tmp") == kind(url, settings, "/tmp")

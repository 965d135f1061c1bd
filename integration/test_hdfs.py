"""Checkpoints in HDFS, where it is not like an object store: what it refuses, and when it is away.

``test_checkpoints_in_a_store`` has killed drivers, a cluster and savepoints.
"""

import io
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.manifest import epochs_of
from beam_spark_runner.savepoint import main
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.webhdfs import WebHdfs
from beam_spark_runner.storage.webhdfs_http import HdfsError
from integration.checkpoint_store import storage
from integration.hdfs_server import USER, Hdfs, HdfsWithStandby, start_hdfs, started_hdfs
from integration.pipelines import counters
from integration.running import run
from integration.stream_kills import StreamStrikes
from integration.streams import KEYS, SINK, check_files, sources_to_files, windows_of_state
from integration.strikes import Event, Victim
from integration.waiting import wait_until
from tests.spark.asking import Asking
from tests.unit.state.many_creators import created_by_many

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

LINEAGE = "main"
COUNT = 48


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with start_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture
def folder(hdfs: Hdfs, tmp_path: Path) -> HdfsFolder:
    made = HdfsFolder(hdfs.folder(f"{tmp_path.name}, 100 %"), hdfs.settings)
    made.make()
    return made


def hidden_and_others(folder: HdfsFolder) -> tuple[list[str], list[str]]:
    """Return the names of files that are being written, and all others."""
    names = sorted(folder.names())
    return [name for name in names if name[0] == "."], [name for name in names if name[0] != "."]


def test_files_are_created_once_and_never_replaced(folder: HdfsFolder) -> None:
    assert folder.create("a", b"one")
    assert not folder.create("a", b"two")
    assert folder.read("a") == b"one"
    assert hidden_and_others(folder) == ([], ["a"])


def test_of_many_that_create_one_file_one_does(folder: HdfsFolder) -> None:
    for _ in range(5):
        assert created_by_many(folder, "a") == [folder.read("a")]
        assert hidden_and_others(folder) == ([], ["a"])
        folder.delete(["a"])


def test_what_is_put_is_found_until_it_is_deleted(folder: HdfsFolder, tmp_path: Path) -> None:
    content = os.urandom(20 << 20)
    folder.put_content("large", io.BytesIO(content))
    (tmp_path / "local").write_bytes(b"small")
    for _ in range(2):
        folder.put("small", tmp_path / "local")
    folder.put_content("empty", io.BytesIO())
    HdfsFolder(f"{folder.url}/below", folder.settings).make()
    assert hidden_and_others(folder) == ([], ["empty", "large", "small"])
    for name, expected in (("empty", b""), ("large", content), ("small", b"small")):
        assert folder.read(name) == expected
        with folder.local(name) as path:
            assert Path(path).read_bytes() == expected
    folder.delete(["large", "missing", "small"])
    assert hidden_and_others(folder) == ([], ["empty"])
    with pytest.raises(FileNotFoundError, match=r"could not read large: .*not found"):
        folder.read("large")


def test_a_folder_that_is_missing_is_not_made_by_a_task(hdfs: Hdfs) -> None:
    folder = HdfsFolder(hdfs.folder("missing"), hdfs.settings)
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match=r"could not list it: .*does not exist"):
        folder.names()
    with pytest.raises(FileNotFoundError, match=r"could not create a: .*Parent directory"):
        folder.create("a", b"")
    with pytest.raises(OptionsError, match="--savepoint_path: there is no folder hdfs://"):
        existing_storage(folder.url, "savepoint_path", hdfs.settings)
    assert not folder.exists()
    folder.make()
    folder.make()
    assert folder.exists()


def test_content_is_seen_only_when_it_is_complete(folder: HdfsFolder) -> None:
    """While another one writes it, and after its writer was killed in the middle."""

    class Dying(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 4 << 20:
                wait_until(lambda: bool(hidden_and_others(folder)[0]), "what is being written")
                seen.append(hidden_and_others(folder))
                raise OSError("killed")
            return super().read(size)

    seen = list[tuple[list[str], list[str]]]()
    with pytest.raises(OSError, match="killed"):
        folder.put_content("a", Dying(bytes(8 << 20)))
    ((hidden, others),) = seen
    assert (len(hidden), others) == (1, [])
    assert list(folder.names()) == []


def test_another_user_is_refused(hdfs: Hdfs, folder: HdfsFolder) -> None:
    port, _ = hdfs.settings
    owner = WebHdfs(["127.0.0.1"], hdfs.web_port, USER)
    owner.make_folder(f"/{USER}/closed")
    # Its owner alone may write there, as is HDFS's default.
    other = HdfsFolder(hdfs.folder("closed"), (port, ("hdfs_user", "stranger")))
    with pytest.raises(HdfsError, match=r"to this user \(see --hdfs_user\): .*user=stranger"):
        other.create("a", b"")
    with pytest.raises(HdfsError, match=r"could not make it: .*user=stranger, access=WRITE"):
        HdfsFolder("hdfs://127.0.0.1/mine", (port, ("hdfs_user", "stranger"))).make()


def test_safe_mode_is_named(hdfs: Hdfs, folder: HdfsFolder) -> None:
    folder.create("a", b"one")
    hdfs.set_safe_mode(is_on=True)
    try:
        for change in (lambda: folder.create("b", b""), lambda: folder.delete(["a"]), folder.make):
            with pytest.raises(HdfsError, match="the namenode is in safe mode"):
                change()
        assert folder.read("a") == b"one"
    finally:
        hdfs.set_safe_mode(is_on=False)
    assert folder.create("b", b"")


def test_a_wrong_port_is_named(hdfs: Hdfs) -> None:
    def ask(port: int) -> None:
        HdfsFolder(hdfs.folder("a"), (("hdfs_port", str(port)), ("hdfs_user", USER))).names()

    with pytest.raises(HdfsError, match=r"is not WebHDFS \(404 Not Found\); --hdfs_host and"):
        ask(hdfs.rpc_port)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(HdfsError, match=rf"could not reach 127\.0\.0\.1:{port}: .*refused; --hdfs"):
        ask(port)


def test_a_datanode_that_is_away(hdfs: Hdfs, folder: HdfsFolder) -> None:
    folder.create("a", b"one")
    hdfs.kill_datanode()
    with pytest.raises(
        HdfsError, match="this is the address of a datanode that the namenode reports"
    ):
        folder.read("a")
    with pytest.raises(HdfsError, match="could not create b"):
        folder.create("b", b"two")
    hdfs.start_datanode()
    wait_until(lambda: is_readable(folder, "a"), "the datanode's blocks")
    assert folder.create("b", b"two")
    assert folder.read("b") == b"two"


def is_readable(folder: HdfsFolder, name: str) -> bool:
    try:
        folder.read(name)
    except HdfsError:
        return False
    return True


def test_the_active_namenode_is_found(tmp_path: Path) -> None:
    hdfs = HdfsWithStandby(tmp_path)
    with started_hdfs(hdfs):
        port, user = hdfs.settings[1:]
        folder = HdfsFolder(hdfs.folder("a"), hdfs.settings)
        reversed_ = HdfsFolder(folder.url, (("hdfs_host", "127.0.0.2,127.0.0.1"), port, user))
        folder.make()
        assert folder.create("a", b"one")
        assert not reversed_.create("a", b"two")
        standby = HdfsFolder(folder.url, (("hdfs_host", "127.0.0.2"), port, user))
        with pytest.raises(HdfsError, match="is a namenode that is not active"):
            standby.create("b", b"two")
        hdfs.fail_over()
        wait_until(lambda: is_readable(folder, "a"), "the other namenode")
        for each in folder, reversed_, standby:
            assert not each.create("a", b"two")
        assert folder.create("b", b"two")
        assert [reversed_.read(name) for name in ("a", "b")] == [b"one", b"two"]


def test_pipelines_that_cannot_use_it_say_why(local_session: Any, hdfs: Hdfs) -> None:
    def flags(url: str, **settings: object) -> list[str]:
        given = {**dict(hdfs.settings), **settings}
        return [f"--checkpoint_dir={url}", *(f"--{name}={given[name]}" for name in given)]

    mine = hdfs.folder("refused")
    for arguments, kind, problem in (
        (flags(mine, hdfs_port=hdfs.rpc_port), CheckpointStorageError, "does not speak HTTP"),
        (flags(mine, hdfs_host="http://a"), OptionsError, "--hdfs_host: must be the name of"),
        (flags("hdfs:///a"), OptionsError, "--hdfs_host: must be given"),
        (flags("hdfs://127.0.0.1/a"), CheckpointStorageError, "Permission denied: user=beam"),
    ):
        with pytest.raises(kind, match=problem):
            run(local_session, windows_of_state, *arguments)


def test_the_command_makes_savepoints(
    local_session: Any, hdfs: Hdfs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = hdfs.folder("done")
    result = run(
        local_session, windows_of_state, f"--checkpoint_dir={done}", *hdfs.checkpoint_flags
    )
    assert counters(result) == {"elements": 3 * KEYS}
    for source, target in ((done, hdfs.folder("saved")), (hdfs.folder("saved"), str(tmp_path))):
        paths = f"--checkpoint_dir={source}", f"--savepoint_path={target}"
        assert main([*paths, *hdfs.checkpoint_flags]) == 0
        assert f"{target} has the state of the pipeline after epoch" in capsys.readouterr().out
    assert main([f"--checkpoint_dir={done}x", paths[1], *hdfs.checkpoint_flags]) == 2
    assert f"--checkpoint_dir: there is no folder {done}x" in capsys.readouterr().err


def namenode_away(hdfs: Hdfs) -> Callable[[], None]:
    hdfs.kill_namenode()
    return hdfs.start_namenode


def datanode_away(hdfs: Hdfs) -> Callable[[], None]:
    hdfs.kill_datanode()
    return hdfs.start_datanode


def in_safe_mode(hdfs: Hdfs) -> Callable[[], None]:
    hdfs.set_safe_mode(is_on=True)
    return lambda: hdfs.set_safe_mode(is_on=False)


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (namenode_away, "could not reach|did not answer|broke off"),
        (datanode_away, "could not reach|HDFS refuses it|did not answer"),
        (in_safe_mode, "in safe mode"),
    ],
)
def test_a_pipeline_continues_when_hdfs_does(
    local_session: Any,
    hdfs: Hdfs,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    break_it: Callable[[Hdfs], Callable[[], None]],
    problem: str,
) -> None:
    """It is away until the driver has noticed."""
    caplog.set_level(logging.WARNING, "beam_spark_runner")
    name = tmp_path.name
    flags = f"--checkpoint_dir={hdfs.folder(name)}", "--batch_interval_millis=100"
    options = PipelineOptions([*flags, *hdfs.checkpoint_flags])
    pipeline = beam.Pipeline(runner=Asking(local_session, stable=[SINK]), options=options)
    nothing = [StreamStrikes(os.devnull, Event.START, Victim.DRIVER, 1)] * 3
    out = tmp_path / "out"
    out.mkdir()
    sources_to_files(pipeline, COUNT, str(out), nothing)
    result = pipeline.run()
    try:
        wait_until(lambda: bool(newest(storage(hdfs, name), epochs_of(LINEAGE))), "a commit")
        checkpoint = storage(hdfs, name)
        mend = break_it(hdfs)
        try:
            wait_until(lambda: "; trying again in" in caplog.text, "a failure")
        finally:
            mend()
        assert result.wait_until_finish() == "DONE"
    finally:
        result.cancel()
    assert counters(result) == {"elements": KEYS * COUNT}
    check_files(out, COUNT)
    failures = [text for text in caplog.messages if "trying again" in text]
    assert failures
    assert any(each in " ".join(failures) for each in problem.split("|"))
    assert [each for each in newest(checkpoint, epochs_of(LINEAGE)) if each.is_final]

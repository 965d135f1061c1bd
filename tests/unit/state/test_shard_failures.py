"""Disks that are full or away, deltas that are damaged, and processes that are killed."""

import errno
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import lmdb
import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.state import local_copy
from beam_spark_runner.state.chain import Chain
from beam_spark_runner.state.delta import CorruptDeltaError, DeltaWriter
from beam_spark_runner.state.stored_deltas import ShardStorageError
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.unit.state.shard_host import ONE, THREE, TWO, Deltas, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "deltas").mkdir()
    return Host(tmp_path / "local", Deltas(str(tmp_path / "deltas")))


def test_a_delta_that_is_damaged_is_named(host: Host) -> None:
    many = {f"k{number}": b"1" * 100 for number in range(100)}
    host.sealed(None, ONE, **many)
    host.sealed(ONE, TWO, b=b"2")
    shutil.rmtree(host.local)
    path = host.deltas.folder / host.name(ONE)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptDeltaError, match=host.name(ONE)):
        host.open(TWO)
    assert host.copies() == []
    path.unlink()
    with pytest.raises(CorruptDeltaError, match=f"{host.name(ONE)} .* no such file"):
        host.open(TWO)
    path.write_bytes(whole)
    assert len(host.records(TWO)) == 101


def test_a_delta_under_the_name_of_another_is_noticed(host: Host) -> None:
    host.sealed(None, ONE, a=b"1")
    folder = host.deltas.folder
    shutil.copy(folder / host.name(ONE), folder / host.name(TWO))
    with pytest.raises(CorruptDeltaError, match=f"{host.name(TWO)} .* it is that of"):
        host.open(TWO)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ESTALE])
def test_a_full_storage_is_named_and_the_work_can_be_done_again(host: Host, code: int) -> None:
    host.sealed(None, ONE, a=b"1")
    host.deltas.errors.append(OSError(code, os.strerror(code)))
    with host.open(ONE) as shard:
        shard.put(b"b", b"lost")
        with pytest.raises(ShardStorageError, match=host.name(TWO)) as caught:
            shard.seal(TWO)
        assert os.strerror(code) in str(caught.value)
        with pytest.raises(InvariantError, match="has ended"):
            shard.get(b"b")
    assert host.records(ONE) == {b"a": b"1"}
    assert host.deltas.opened == []
    host.sealed(ONE, THREE, b=b"2")
    assert host.records(THREE) == {b"a": b"1", b"b": b"2"}


def test_a_storage_that_cannot_be_read_is_named(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(self: Deltas, name: str) -> BinaryIO:
        raise OSError(errno.ESTALE, "stale")

    host.sealed(None, ONE, a=b"1")
    shutil.rmtree(host.local)
    monkeypatch.setattr(Deltas, "open", away)
    with pytest.raises(ShardStorageError, match=f"{host.name(ONE)}.*stale") as caught:
        host.open(ONE)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.place) == (str(caught.value), host.name(ONE))


def test_a_full_local_disk_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.sealed(None, ONE, a=b"1")
    monkeypatch.setattr(local_copy, "RESERVE_BYTES", 1 << 62)
    in_the_copy = f"{host.local}/job-1-2: .*MB are free"
    with host.open(ONE) as shard, pytest.raises(ShardStorageError, match=in_the_copy):
        shard.put(b"b", b"2")
    # The copy is gone, which leaves room; it would have to be built again.
    assert host.copies() == []
    with pytest.raises(ShardStorageError, match=in_the_copy):
        host.open(ONE)
    assert host.copies() == []
    monkeypatch.undo()
    assert host.records(ONE) == {b"a": b"1"}


def test_a_local_disk_that_is_full_during_a_merge_is_not_the_older_deltas_fault(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sealed(None, ONE, a=bytes(100), z=bytes(100))
    put = DeltaWriter.put

    def full(self: DeltaWriter, key: bytes, value: bytes) -> None:
        if key == b"z":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(self, key, value)

    with host.open(ONE) as shard:
        shard.put(b"b", bytes(50))
        monkeypatch.setattr(DeltaWriter, "put", full)
        with pytest.raises(ShardStorageError, match=f"{host.local}/job-1-2: .*No space left"):
            shard.seal(TWO)
    assert host.copies() == []


def test_a_full_map_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copy, "MAP_BYTES", 1 << 20)
    with host.open(None) as shard:
        with pytest.raises(ShardStorageError, match=r"job-1-2.*MDB_MAP_FULL"):
            shard.put(b"a", bytes(2 << 20))
        with pytest.raises(InvariantError, match="has ended"):
            shard.seal(ONE)
    assert host.copies() == []


def test_a_commit_that_fails_leaves_no_copy(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: local_copy.LocalCopy, chain: Chain) -> None:
        raise lmdb.DiskError("broken")

    host.sealed(None, ONE, a=b"1")
    monkeypatch.setattr(local_copy.LocalCopy, "commit", broken)
    with host.open(ONE) as shard:
        shard.put(b"b", b"2")
        with pytest.raises(ShardStorageError, match=r"job-1-2.*broken"):
            shard.seal(TWO)
    assert host.copies() == []


def test_a_local_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = Host(tmp_path / "file", Deltas(str(tmp_path)))
    with pytest.raises(ShardStorageError, match="file/job-1-2"):
        host.open(None)


KILLED = """
import os, sys
from pathlib import Path
from beam_spark_runner.state.chain import Chain, ShardVersion
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.state.shards import open_shard

local, deltas = map(Path, sys.argv[1:])
def shard():
    deltas_ = MountedFolder(str(deltas))
    return open_shard(local, deltas_, lineage="job", level=1, partition=2, head=ShardVersion(1, 11))
one, other = shard(), shard()
for number in range(1000):
    one.put(b"%d" % number, b"lost")
    other.put(b"%d" % number, b"lost")
os._exit(3)
"""


def test_what_a_killed_process_did_never_happened(host: Host) -> None:
    host.sealed(None, ONE, a=b"1")
    arguments = [sys.executable, "-c", KILLED, str(host.local), str(host.deltas.folder)]
    assert subprocess.run(arguments, check=False).returncode == 3
    assert len(host.copies()) == 2
    assert host.records(ONE) == {b"a": b"1"}
    assert host.deltas.opened == []
    # Whoever has to rebuild next removes the private copy, too; not those that are in use.
    with host.open(ONE), host.open(ONE):
        assert len(host.copies()) == 2
    shutil.rmtree(host.local / "job-1-2")
    assert host.records(ONE) == {b"a": b"1"}
    assert [each.name for each in host.local.iterdir() if each.is_dir()] == ["job-1-2"]


def test_a_forked_child_does_not_keep_the_copy(host: Host) -> None:
    shard = host.open(None)
    child = os.dup(shard._claim._lock)  # as a fork does: the same open file
    shard.close()
    with host.open(None):
        assert host.copies() == ["job-1-2"]
    os.close(child)


def test_a_folder_puts_a_file_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, local = tmp_path / "folder", tmp_path / "local"
    local.write_bytes(b"content")
    deltas = MountedFolder(str(folder))
    with pytest.raises(FileNotFoundError):
        deltas.put("name", local)
    assert not folder.exists()
    folder.mkdir()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="full"):
            deltas.put("name", local)
        MountedFolder(str(folder), syncs=False).put("unsynced", local)
    (folder / "unsynced").unlink()
    assert list(folder.iterdir()) == []
    deltas.put("name", local)
    assert [each.name for each in folder.iterdir()] == ["name"]
    assert local.exists()
    with pickle.loads(pickle.dumps(deltas)).open("name") as stream:
        assert stream.read() == b"content"
    with pytest.raises(FileNotFoundError):
        deltas.open("other")

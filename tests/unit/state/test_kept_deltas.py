"""A host reads the last deltas that it has stored from its own disk."""

from pathlib import Path
from typing import BinaryIO

import pytest
from typing_extensions import override

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.remote.kept_deltas import KeptDeltas
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.store_keys import StoreKeys
from beam_spark_runner.state.stored_deltas import ShardStorageError
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files, name_of

KEY = StoreKeys(0).of_window("step", b"w", b"key")
FIRST, SECOND = ShardVersion(1, 1), ShardVersion(2, 2)


class CountingFiles(Files):
    """Counts the files that are read."""

    read = 0

    @override
    def open(self, name: str) -> BinaryIO:
        self.read += 1
        return super().open(name)


class Host:
    """A host and its kept deltas."""

    def __init__(self, files: Files, store: SimulatedStore, folder: Path) -> None:
        self.files, self._store, self._folder = files, store, folder
        self.kept = folder / "kept"

    def opened(self, head: KeyedHead) -> KeyedShard:
        deltas = KeyedDeltas(KeptDeltas(self.files, self.kept), name_of, 0, head)
        return KeyedShard(self._store, [0], 1, deltas, self._folder)

    def put(self, head: KeyedHead, version: ShardVersion, value: bytes) -> KeyedHead:
        with self.opened(head) as shard:
            shard.records.put(KEY, value)
            return shard.seal(version)


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, Host]:
    files, store = CountingFiles(), SimulatedStore()
    folders = tmp_path / "one", tmp_path / "two"
    for each in folders:
        each.mkdir()
    one, two = (Host(files, store, each) for each in folders)
    return one, two


def files_read(host: Host) -> int:
    assert isinstance(host.files, CountingFiles)
    return host.files.read


def test_the_last_delta_is_read_from_the_disk_of_the_host(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    head = one.put(KeyedHead(), FIRST, b"1")
    head = one.put(head, SECOND, b"2")
    assert files_read(one) == 0
    assert [each.name for each in one.kept.iterdir()] == [name_of(0, SECOND)]
    with two.opened(head) as shard:  # which has none
        assert shard.records.get(KEY) == b"2"
    assert files_read(two) > 0


def test_another_partition_and_another_attempt_keep_theirs(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    head = one.put(KeyedHead(), FIRST, b"1")
    one.put(head, SECOND, b"of an attempt that is not accepted")
    accepted = one.put(head, ShardVersion(2, 3), b"2")
    other = one.kept / name_of(1, FIRST)
    other.write_bytes(b"of another partition")
    with one.opened(accepted) as shard:
        assert shard.records.get(KEY) == b"2"
    one.put(accepted, ShardVersion(3, 4), b"3")
    assert sorted(each.name for each in one.kept.iterdir()) == sorted(
        [name_of(0, ShardVersion(3, 4)), other.name]
    )


@pytest.mark.parametrize("cut_to", [0, 20, -1])
def test_a_damaged_file_of_the_host_is_removed(hosts: tuple[Host, Host], cut_to: int) -> None:
    one, _ = hosts
    head = one.put(KeyedHead(), FIRST, b"1")
    path = one.kept / name_of(0, FIRST)
    path.write_bytes(path.read_bytes()[:cut_to])
    with pytest.raises(ShardStorageError, match="this host's copy of it"):
        one.opened(head)
    assert not path.exists()
    with one.opened(head) as shard:  # the epoch is repeated
        assert shard.records.get(KEY) == b"1"


def test_a_frame_that_is_damaged_is_found_while_it_is_applied(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    head = one.put(KeyedHead(), FIRST, bytes(100_000))
    path = one.kept / name_of(0, FIRST)
    content = bytearray(path.read_bytes())
    content[30] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ShardStorageError, match="this host's copy of it"):
        one.opened(head)
    with one.opened(head) as shard:
        assert shard.records.get(KEY) == bytes(100_000)


def test_a_damaged_file_of_the_checkpoint_is_an_error(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    head = one.put(KeyedHead(), FIRST, b"1")
    one.files.files[name_of(0, FIRST)] = b"damaged"
    with pytest.raises(CorruptDeltaError):
        two.opened(head)

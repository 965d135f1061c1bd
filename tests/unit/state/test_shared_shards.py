"""A shard that the task's thread uses, and another one that answers an SDK harness."""

import threading
from pathlib import Path

from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.locked_records import LockedRecords
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.storage.mounted_folder import MountedFolder

_KEYS = [f"{number:05d}".encode() for number in range(5_000)]


def opened(folder: Path, head: ShardVersion | None = None) -> Shard:
    deltas = folder / "deltas"
    deltas.mkdir(exist_ok=True)
    return open_shard(
        folder / "local",
        MountedFolder(str(deltas)),
        lineage="job",
        level=1,
        partition=2,
        head=head,
    )


def work(shard: LockedRecords, prefix: bytes, errors: list[BaseException]) -> None:
    """Put, read, scan and delete records that nobody else uses."""
    try:
        for lap in range(3):
            for key in _KEYS:
                shard.put(prefix + key, key * (lap + 1))
                assert shard.get(prefix + key) == key * (lap + 1)
            for place, (key, value) in enumerate(shard.scan(prefix)):
                assert (key, value) == (prefix + _KEYS[place], _KEYS[place] * (lap + 1))
                if place == 100:
                    break
            for key in _KEYS[::2]:
                assert shard.delete(prefix + key)
        shard.delete_prefix(prefix + b"01")
    except BaseException as error:
        errors.append(error)


def test_threads_that_use_records_of_their_own_do_not_disturb_each_other(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    prefixes = (b"a", b"b", b"c")
    with opened(tmp_path) as shard:
        records = LockedRecords(shard)
        threads = [
            threading.Thread(target=work, args=(records, prefix, errors)) for prefix in prefixes
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not errors
        head = shard.seal(ShardVersion(1, 11))
    left = [key for key in _KEYS[1::2] if not key.startswith(b"01")]
    with opened(tmp_path, head) as shard:
        found = dict(shard.scan(b""))
    assert found == {prefix + key: key * 3 for prefix in prefixes for key in left}


def test_they_are_like_any_others(tmp_path: Path) -> None:
    with opened(tmp_path) as shard:
        records = LockedRecords(shard)
        records.put(b"a1", b"1")
        records.put(b"a2", b"2")
        records.put(b"b1", b"3")
        assert shard.changed
        for key, _ in records.scan(b"a"):
            records.delete(key)  # what is deleted meanwhile counts
        assert [*records.scan(b"")] == [(b"b1", b"3")]
        head = shard.seal(ShardVersion(1, 11))
    with opened(tmp_path, head) as shard:
        assert LockedRecords(shard).get(b"b1") == b"3"
        assert LockedRecords(shard).get(b"a1") is None

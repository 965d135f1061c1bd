"""What an attempt has sealed in vain is undone in the local copy, if it was the last one there."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.local_copy import Origin
from beam_spark_runner.state.undo import undo_last_commit
from tests.unit.state.shard_host import ONE, THREE, TWO, Deltas, Host

REJECTED = ShardVersion(2, 99)
PAGE = 4096
TRANSACTION = 144  # where its number stands in a meta page


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "deltas").mkdir()
    return Host(tmp_path / "local", Deltas(str(tmp_path / "deltas")))


def opened(host: Host, head: ShardVersion | None) -> tuple[Origin, dict[bytes, bytes]]:
    with host.open(head) as shard:
        return shard.origin, dict(shard.scan(b""))


def test_an_attempt_that_was_not_accepted_is_undone(host: Host) -> None:
    host.sealed(None, ONE, a=b"1", b=b"1")
    with host.open(ONE) as shard:
        shard.put(b"a", b"wrong")
        shard.delete(b"b")
        shard.put(b"c", b"wrong")
        shard.seal(REJECTED)
    assert opened(host, ONE) == (Origin.UNDONE, {b"a": b"1", b"b": b"1"})
    assert opened(host, ONE) == (Origin.KEPT, {b"a": b"1", b"b": b"1"})
    host.sealed(ONE, TWO, a=b"2")
    assert opened(host, TWO) == (Origin.KEPT, {b"a": b"2", b"b": b"1"})
    assert host.deltas.opened == []
    shutil.rmtree(host.local)
    assert opened(host, TWO) == (Origin.REBUILT, {b"a": b"2", b"b": b"1"})


def test_the_first_attempt_at_a_shard_is_undone(host: Host) -> None:
    host.sealed(None, ONE, a=b"wrong")
    assert opened(host, None) == (Origin.UNDONE, {})


def test_any_number_of_attempts_at_an_epoch_are_undone_one_by_one(host: Host) -> None:
    head = host.sealed(None, ONE, a=b"1")
    for attempt in range(5):
        with host.open(head) as shard:
            assert shard.origin is (Origin.UNDONE if attempt else Origin.KEPT)
            shard.put(b"a", b"%d" % attempt)
            shard.seal(ShardVersion(2, attempt))
    assert opened(host, ONE) == (Origin.UNDONE, {b"a": b"1"})
    assert host.deltas.opened == []


@pytest.mark.parametrize(
    "head", [None, ONE, ShardVersion(2, 77)], ids=["before both", "before two", "of another host"]
)
def test_what_is_further_away_is_rebuilt(host: Host, head: ShardVersion | None) -> None:
    elsewhere = Host(host.local.with_name("elsewhere"), host.deltas)
    host.sealed(None, ONE, a=b"1")
    elsewhere.sealed(ONE, ShardVersion(2, 77), a=b"77")
    host.sealed(ONE, TWO, a=b"2")
    host.sealed(TWO, THREE, a=b"3")
    expected = dict(elsewhere.records(head))
    assert opened(host, head) == (Origin.REBUILT, expected)
    assert opened(host, head) == (Origin.KEPT, expected)


def test_a_copy_that_was_just_rebuilt_cannot_be_undone(host: Host) -> None:
    host.sealed(None, ONE, a=b"1")
    host.sealed(ONE, TWO, a=b"2")
    shutil.rmtree(host.local)
    assert opened(host, TWO) == (Origin.REBUILT, {b"a": b"2"})
    assert opened(host, ONE) == (Origin.REBUILT, {b"a": b"1"})


@pytest.mark.parametrize("page", [0, PAGE])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(8 + 2, id="it is no meta page"),
        pytest.param(16, id="the magic"),
        pytest.param(20, id="the format"),
        pytest.param(TRANSACTION, id="the number of the transaction"),
    ],
)
def test_a_damaged_undo_record_is_not_used(host: Host, page: int, damage: int) -> None:
    host.sealed(None, ONE, a=b"1")
    host.sealed(ONE, TWO, a=b"wrong")
    path = host.local / "job-1-2" / "data.mdb"
    with path.open("r+b") as file:
        file.seek(page + damage)
        (byte,) = file.read(1)
        file.seek(page + damage)
        file.write(bytes([byte ^ 0x18]))
        file.flush()
        assert not undo_last_commit(path.parent)
    origin, records = opened(host, ONE)
    # Damage to a number may have made the older of the two the newer one.
    assert origin is not Origin.UNDONE
    assert records == {b"a": b"1"}


@pytest.mark.parametrize("length", [0, 100, PAGE, PAGE + 100])
def test_a_file_that_is_cut_off_cannot_be_undone(host: Host, length: int) -> None:
    host.sealed(None, ONE, a=b"1")
    host.sealed(ONE, TWO, a=b"wrong")
    path = host.local / "job-1-2" / "data.mdb"
    os.truncate(path, length)
    assert not undo_last_commit(path.parent)


def test_an_undone_shard_is_whole_whatever_pages_were_used_again(host: Host) -> None:
    """Most pages of a copy are freed and used again, by attempts that count and others."""
    chance, origins = random.Random(7), Counter[Origin]()
    head: ShardVersion | None = None
    at_head: dict[bytes, bytes] = {}
    sizes = []
    for epoch in range(1, 81):
        with host.open(head) as shard:
            origins[shard.origin] += 1
            records = dict(shard.scan(b""))
            assert records == at_head
            start = chance.randrange(3000)
            for number in range(start, start + chance.choice([3, 300, 1500])):
                key = b"%07d" % (number * 7919 % 4000)
                if chance.random() < 0.4:
                    shard.delete(key)
                    records.pop(key, None)
                else:
                    records[key] = chance.randbytes(chance.choice([10, 200, 5000]))
                    shard.put(key, records[key])
            version = shard.seal(ShardVersion(epoch, epoch))
            if chance.random() < 0.5:
                head, at_head = version, records
        sizes.append((host.local / "job-1-2" / "data.mdb").stat().st_blocks * 512)
    assert origins[Origin.REBUILT] == 1
    assert origins[Origin.UNDONE] > 25
    live = sum(map(len, at_head.values()))
    assert sizes[-1] < 8 * live + (1 << 20), "undone attempts leave no pages behind"

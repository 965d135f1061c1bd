"""A shard is at its head whatever became of the local copy, and changes only when it is sealed."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.state import local_copy
from beam_spark_runner.state.shards import KEY_LIMIT, Shard
from tests.unit.state.shard_host import ONE, THREE, TWO, Deltas, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "deltas").mkdir()
    return Host(tmp_path / "local", Deltas(str(tmp_path / "deltas")))


@pytest.fixture
def shard(host: Host) -> "Shard":
    return host.open(None)


def test_a_shard_reads_its_own_writes(shard: Shard) -> None:
    with shard:
        shard.put(b"a", b"1")
        shard.put(b"b", b"")
        assert (shard.get(b"a"), shard.get(b"b"), shard.get(b"c")) == (b"1", b"", None)
        assert shard.changed
        assert shard.delete(b"a")
        assert not shard.delete(b"a")
        assert shard.get(b"a") is None


def test_its_size_is_that_of_its_pages(shard: Shard) -> None:
    with shard:
        before = shard.used()
        assert before.records == 0
        for number in range(1_000):
            shard.put(b"%d" % number, bytes(1_000))
        assert before.size_bytes < 10_000 < 1_000_000 < shard.used().size_bytes < 3_000_000
        assert shard.used().records == 1_000
        shard.delete_prefix(b"")
        assert shard.used() == before


def test_deleting_nothing_is_no_change(shard: Shard) -> None:
    with shard:
        assert not shard.delete(b"a")
        shard.delete_prefix(b"")
        assert not shard.changed


def test_a_scan_yields_what_begins_with_the_prefix_in_order(shard: Shard) -> None:
    with shard:
        for key in (b"b2", b"a", b"b", b"b1", b"c", b"b\xff"):
            shard.put(key, key)
        assert [key for key, _ in shard.scan(b"b")] == [b"b", b"b1", b"b2", b"b\xff"]
        assert [key for key, _ in shard.scan(b"b", b"b10")] == [b"b2", b"b\xff"]
        assert [key for key, _ in shard.scan(b"b", b"b1")] == [b"b1", b"b2", b"b\xff"]
        assert [key for key, _ in shard.scan(b"b", b"a")] == [b"b", b"b1", b"b2", b"b\xff"]
        assert list(shard.scan(b"b", b"c")) == []
        assert [key for key, _ in shard.scan(b"")] == [b"a", b"b", b"b1", b"b2", b"b\xff", b"c"]
        assert list(shard.scan(b"x")) == []


def test_a_scan_may_begin_behind_the_longest_key(shard: Shard) -> None:
    longest = b"k" * KEY_LIMIT
    with shard:
        shard.put(longest, b"1")
        shard.put(b"l", b"2")
        assert [value for _, value in shard.scan(b"", longest)] == [b"1", b"2"]
        assert [value for _, value in shard.scan(b"", longest + b"\0")] == [b"2"]
        assert list(shard.scan(longest + b"\0")) == []


def test_a_scan_continues_behind_its_last_key_whatever_is_changed_meanwhile(shard: Shard) -> None:
    with shard:
        for number in range(10):
            shard.put(b"%d" % number, b"old")
        seen = []
        for key, value in shard.scan(b""):
            seen.append((key, value))
            shard.delete(key)
            if key == b"2":
                shard.put(b"0", b"not seen any more")
                shard.put(b"25", b"new")
                shard.put(b"4", b"new")
                shard.delete_prefix(b"5")
        expected = [b"0", b"1", b"2", b"25", b"3", b"4", b"6", b"7", b"8", b"9"]
        assert [key for key, _ in seen] == expected
        assert dict(seen)[b"4"] == b"new"
        assert list(shard.scan(b"")) == [(b"0", b"not seen any more")]


def test_a_scan_yields_no_key_twice_that_is_put_again(shard: Shard) -> None:
    with shard:
        shard.put(b"a", b"old")
        shard.put(b"b", b"old")
        seen = []
        for key, value in shard.scan(b""):
            seen.append((key, value))
            assert len(seen) < 3
            shard.put(key, b"new")
        assert seen == [(b"a", b"old"), (b"b", b"old")]


def test_two_scans_do_not_disturb_each_other(shard: Shard) -> None:
    with shard:
        for key in (b"a", b"b", b"c"):
            shard.put(key, b"")
        pairs = [(one, other) for one, _ in shard.scan(b"") for other, _ in shard.scan(b"")]
        assert pairs == [(one, other) for one in (b"a", b"b", b"c") for other in (b"a", b"b", b"c")]


@pytest.mark.parametrize("prefix", [b"", b"b", b"b\xff", b"x", b"c"])
def test_a_prefix_is_deleted(host: Host, prefix: bytes) -> None:
    keys = {b"a", b"b", b"b1", b"b2", b"b\xff", b"b\xff\xff", b"c"}
    with host.open(None) as shard:
        for key in keys:
            shard.put(key, key)
        shard.delete_prefix(prefix)
        left = {key: key for key in keys if not key.startswith(prefix)}
        assert dict(shard.scan(b"")) == left
        shard.seal(ONE)
    shutil.rmtree(host.local)
    assert host.records(ONE) == left


@pytest.mark.parametrize("key", [b"", b"k" * (KEY_LIMIT + 1)])
def test_keys_that_lmdb_cannot_have_are_our_bug(shard: Shard, key: bytes) -> None:
    verbs: list[Callable[[], object]] = [
        lambda: shard.get(key),
        lambda: shard.put(key, b""),
        lambda: shard.delete(key),
    ]
    with shard:
        for verb in verbs:
            with pytest.raises(InvariantError, match=f"a key of {len(key)} bytes"):
                verb()
        shard.put(b"k" * KEY_LIMIT, b"1")


def test_a_shard_may_move_between_threads(shard: Shard) -> None:
    with shard:
        shard.put(b"a", b"1")
        thread = threading.Thread(target=shard.put, args=(b"b", b"2"))
        thread.start()
        thread.join()
        assert dict(shard.scan(b"")) == {b"a": b"1", b"b": b"2"}
        sealing = threading.Thread(target=shard.seal, args=(ONE,))
        sealing.start()
        sealing.join()


def test_the_local_copy_is_used_while_it_is_the_head(host: Host) -> None:
    host.sealed(None, ONE, a=b"1")
    assert host.records(ONE) == {b"a": b"1"}
    host.sealed(ONE, TWO, b=b"2")
    assert host.records(TWO) == {b"a": b"1", b"b": b"2"}
    assert host.deltas.opened == []


def test_a_lost_copy_is_rebuilt_from_the_deltas(host: Host) -> None:
    host.sealed(None, ONE, a=b"1", b=b"1")
    with host.open(ONE) as shard:
        shard.put(b"b", b"2")
        shard.delete(b"a")
        shard.put(b"c", b"2")
        shard.seal(TWO)
    shutil.rmtree(host.local)
    assert host.records(TWO) == {b"b": b"2", b"c": b"2"}
    host.deltas.opened.clear()
    assert host.records(TWO) == {b"b": b"2", b"c": b"2"}
    assert host.deltas.opened == []


def test_a_copy_from_before_the_host_was_started_does_not_count(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sealed(None, ONE, a=b"1")
    monkeypatch.setattr(local_copy, "boot_id", lambda: "another boot")
    assert host.records(ONE) == {b"a": b"1"}
    assert len(host.deltas.opened) == 2


@pytest.mark.parametrize("content", [b"", b"no LMDB" * 10_000])
def test_a_copy_that_is_damaged_does_not_count(host: Host, content: bytes) -> None:
    host.sealed(None, ONE, a=b"1")
    (host.local / "job-1-2" / "data.mdb").write_bytes(content)
    assert host.records(ONE) == {b"a": b"1"}


def test_without_a_change_there_is_no_delta(host: Host) -> None:
    with host.open(None) as shard:
        assert shard.seal(ONE) is None
    host.sealed(None, ONE, a=b"1")
    with host.open(ONE) as shard:
        assert shard.seal(TWO) == ONE
    assert [each.name for each in host.deltas.folder.iterdir()] == [host.name(ONE)]
    assert host.records(ONE) == {b"a": b"1"}
    assert host.deltas.opened == []


@pytest.mark.parametrize("is_explicit", [False, True])
def test_what_is_aborted_never_happened(host: Host, is_explicit: bool) -> None:
    host.sealed(None, ONE, a=b"1")
    with host.open(ONE) as shard:
        shard.put(b"a", b"2")
        shard.delete_prefix(b"")
        if is_explicit:
            shard.abort()
            shard.abort()
    shard.close()
    assert host.records(ONE) == {b"a": b"1"}
    assert host.deltas.opened == []
    assert [each.name for each in (host.local / "job-1-2").iterdir()] == ["data.mdb"]


def test_a_shard_that_has_ended_is_not_used_again(host: Host) -> None:
    shard = host.open(None)
    shard.put(b"a", b"1")
    shard.put(b"b", b"2")
    scan = shard.scan(b"")
    next(scan)
    shard.seal(ONE)
    verbs: list[Callable[[], object]] = [
        lambda: shard.get(b"a"),
        lambda: shard.put(b"a", b""),
        lambda: shard.delete(b"a"),
        lambda: shard.delete_prefix(b"a"),
        lambda: list(shard.scan(b"a")),
        lambda: next(scan),
        lambda: shard.seal(TWO),
    ]
    for verb in verbs:
        with pytest.raises(InvariantError, match="has ended"):
            verb()
    shard.abort()
    shard.close()
    assert host.records(ONE) == {b"a": b"1", b"b": b"2"}
    with host.open(ONE) as shard, pytest.raises(InvariantError, match="sealed twice"):
        shard.seal(ONE)


def test_a_second_attempt_works_on_a_separate_copy(host: Host) -> None:
    host.sealed(None, ONE, a=b"1")
    with host.open(ONE) as first, host.open(ONE) as second, host.open(ONE) as third:
        assert len(host.copies()) == 3
        first.put(b"b", b"first")
        second.put(b"b", b"second")
        third.put(b"c", b"third")
        assert second.get(b"b") == b"second"
        assert second.seal(TWO) == TWO
        assert first.seal(THREE) == THREE
    assert host.copies() == ["job-1-2"]
    assert [each.name for each in host.local.glob(".*")] == []
    assert host.records(THREE) == {b"a": b"1", b"b": b"first"}
    assert host.records(TWO) == {b"a": b"1", b"b": b"second"}

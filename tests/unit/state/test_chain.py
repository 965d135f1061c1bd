"""Which deltas a shard is rebuilt from, and how many, whatever is changed in which epoch."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.state import chain
from beam_spark_runner.state.chain import (
    Chain,
    ChainedDelta,
    ShardVersion,
    SliceStart,
    chain_of,
    coded_chain,
    first_to_merge,
    has_later_slice,
    head_of,
    still_needed,
)
from beam_spark_runner.state.delta import CorruptDeltaError
from tests.unit.state.shard_host import ONE, THREE, TWO, Deltas, Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "deltas").mkdir()
    return Host(tmp_path / "local", Deltas(str(tmp_path / "deltas")))


def links(*sizes: int) -> Chain:
    return tuple(
        ChainedDelta(ShardVersion(epoch, epoch), size, SliceStart(0, b""))
        for epoch, size in enumerate(sizes, 1)
    )


def placed(*places: SliceStart) -> Chain:
    return tuple(
        ChainedDelta(ShardVersion(epoch, epoch), 1, place) for epoch, place in enumerate(places, 1)
    )


def test_a_chain_is_coded() -> None:
    some = placed(SliceStart(0, b""), SliceStart(1 << 40, b"\xff" * 511))
    assert chain_of(list(coded_chain(some))) == some
    assert (head_of(some), head_of(())) == (ShardVersion(2, 2), None)


@pytest.mark.parametrize(
    ("place", "needed"),
    [
        pytest.param(SliceStart(1, b"b"), 3, id="the slices have not come around"),
        pytest.param(SliceStart(1, b"c"), 2, id="they have come to where the oldest has stopped"),
        pytest.param(SliceStart(1, b"p"), 2, id="and on"),
        pytest.param(SliceStart(2, b""), 1, id="to the end"),
        pytest.param(SliceStart(2, b"a"), 0, id="the new delta has all"),
    ],
)
def test_what_slices_have_replaced_is_not_needed(place: SliceStart, needed: int) -> None:
    some = placed(SliceStart(0, b"c"), SliceStart(0, b"q"), SliceStart(1, b"a"))
    assert still_needed(some, place) == some[3 - needed :]


@pytest.mark.parametrize(
    ("last", "replaced"),
    [
        pytest.param(SliceStart(3, b"f"), b"", id="no slice has come since"),
        pytest.param(SliceStart(3, b"h"), b"fg", id="some"),
        pytest.param(SliceStart(4, b""), b"fghi", id="to the end"),
        pytest.param(SliceStart(4, b"c"), b"abfghi", id="and from the beginning"),
    ],
)
def test_a_later_slice_has_what_comes_after_a_delta(last: SliceStart, replaced: bytes) -> None:
    some = placed(SliceStart(3, b"f"), last)
    has_it = has_later_slice(some[0], some)
    assert bytes(key for key in b"abcdefghi" if has_it(bytes([key]))) == replaced
    assert not any(has_later_slice(some[1], some)(bytes([key])) for key in range(256))


@pytest.mark.parametrize(
    ("sizes", "size", "merged"),
    [
        pytest.param([], 5, 0, id="there are none"),
        pytest.param([100], 100, 1, id="of the same size"),
        pytest.param([100], 65, 1, id="of the same tier"),
        pytest.param([100], 63, 0, id="of a higher tier"),
        pytest.param([100, 50, 40], 40, 3, id="one by one they come to the tier of the next"),
        pytest.param([100, 10, 40], 9, 0, id="no older one if a newer one stays"),
        pytest.param([800, 120], 100, 1, id="all together would be too large"),
        pytest.param([10], 2000, 0, id="it is too large itself"),
    ],
)
def test_small_deltas_are_merged(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], size: int, merged: int
) -> None:
    monkeypatch.setattr(chain, "LARGEST_BYTES", 1000)
    assert first_to_merge(links(*sizes), size) == len(sizes) - merged


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=300))
def test_few_deltas_are_left_and_bytes_are_seldom_merged(sizes: list[int]) -> None:
    largest = 1000
    written, current = 0, links()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "LARGEST_BYTES", largest)
        for size in sizes:
            first = first_to_merge(current, size)
            size += sum(link.size for link in current[first:])
            written += size
            current = (*current[:first], ChainedDelta(ONE, size, SliceStart(0, b"")))
            assert size <= max(largest, sizes[-1], *sizes)
    total = sum(sizes)
    assert sum(link.size for link in current) == total
    tiers = largest.bit_length()
    assert len(current) <= 2 * total / largest + tiers + 1
    assert written <= total * (1 + tiers)


def chain_at(host: Host, head: ShardVersion) -> Chain:
    with host.open(head) as shard:
        return shard.chain


def size_of(host: Host, version: ShardVersion) -> int:
    return (host.deltas.folder / host.name(version)).stat().st_size


def test_a_small_shard_is_in_one_delta(host: Host) -> None:
    host.sealed(None, ONE, a=b"1", b=b"1")
    assert [link.version for link in chain_at(host, ONE)] == [ONE]
    host.sealed(ONE, TWO, a=b"2", b=b"2")
    assert [link.version for link in chain_at(host, TWO)] == [TWO]
    shutil.rmtree(host.local)
    (host.deltas.folder / host.name(ONE)).unlink()
    assert host.records(TWO) == {b"a": b"2", b"b": b"2"}


def test_deltas_that_are_replaced_are_not_read_any_more(host: Host) -> None:
    """As after a sweep: only what the chain names is there."""
    chance, head, expected = random.Random(3), None, dict[bytes, bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "LARGEST_BYTES", 3000)
        longest = 0
        for epoch in range(1, 250):
            with host.open(head) as shard:
                assert shard.chain == () or head_of(shard.chain) == head
                for _ in range(chance.randrange(1, 30)):
                    key = b"%03d" % chance.randrange(400)
                    if chance.random() < 0.3:
                        shard.delete(key)
                        expected.pop(key, None)
                    else:
                        expected[key] = b"%d" % chance.randrange(1 << 60)
                        shard.put(key, expected[key])
                head = shard.seal(ShardVersion(epoch, epoch))
                needed = {host.name(link.version) for link in shard.chain}
                longest = max(longest, len(needed))
            for path in host.deltas.folder.iterdir():
                if path.name not in needed:
                    path.unlink()
            if epoch % 10 == 0:
                shutil.rmtree(host.local)
            assert host.records(head) == expected
    assert 5 < longest < 25


def test_no_epoch_writes_much_and_a_rebuild_reads_few_files(host: Host) -> None:
    """10,000 entries of 120 bytes, of which an epoch changes one in a hundred."""
    chance, head = random.Random(5), None
    keys = [b"%012d" % (number * 7919 % 10_000) for number in range(10_000)]
    records = {key: chance.randbytes(100) for key in keys}
    sizes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "LARGEST_BYTES", 50_000)
        for epoch in range(1, 250):
            some = keys[(epoch - 1) * 100 : epoch * 100] or chance.sample(keys, 100)
            with host.open(head) as shard:
                for key in some:
                    records[key] = chance.randbytes(100)
                    shard.put(key, records[key])
                head = shard.seal(ShardVersion(epoch, epoch))
            assert head is not None
            sizes.append(size_of(host, head))
            if epoch > 100:
                total = sum(size_of(host, link.version) for link in chain_at(host, head))
                assert total < 2.3 * 10_000 * 124
                assert len(chain_at(host, head)) < 4 * 10_000 * 124 / 50_000 + 17
    one = 100 * 124  # an epoch's changes
    assert max(sizes) < 50_000 + one
    assert sum(sizes) / len(sizes) < 4 * one
    shutil.rmtree(host.local)
    host.deltas.opened.clear()
    assert host.records(head) == records


def test_an_older_delta_that_is_damaged_is_named_before_it_is_merged(host: Host) -> None:
    host.sealed(None, ONE, **{f"k{number}": b"1" * 100 for number in range(100)})
    host.sealed(ONE, TWO, a=b"1" * 300)
    path = host.deltas.folder / host.name(TWO)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with host.open(TWO) as shard:
        shard.put(b"b", b"1" * 300)
        with pytest.raises(CorruptDeltaError, match=host.name(TWO)):
            shard.seal(THREE)
    path.write_bytes(whole)
    head = host.sealed(TWO, THREE, b=b"2")
    assert host.records(head)[b"b"] == b"2"
    assert host.deltas.opened == [host.name(TWO)]

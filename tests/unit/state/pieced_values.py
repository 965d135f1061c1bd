"""Values around the size of a piece, epoch after epoch, in a keyed shard and in a dict."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import strategies as st

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import KeyStore, Structure
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.store_keys import StoreKeys, numbered
from tests.unit.state.test_keyed_shards import Files, name_of

SMALL = 600
"""The bytes of a piece in these tests; smaller values may be in packs."""

KEYS = StoreKeys(0)
PREFIX = KEYS.of_window("step", b"w", b"key")

_SIZES = st.sampled_from(
    [0, 1, 300, *(count * SMALL + more for count in (1, 2, 3, 7) for more in (-1, 0, 1))]
)
EPOCHS = st.lists(
    st.dictionaries(st.integers(0, 3), st.none() | _SIZES, min_size=1, max_size=4), max_size=5
)
"""The new sizes of some values in each epoch; None: a value is removed."""


def run_epochs(
    store: KeyStore, scratch: Path, epochs: Sequence[Mapping[int, int | None]], piece: int
) -> None:
    """Change values and compare, and look what the store has."""
    files, head = Files(), KeyedHead()
    expected: dict[bytes, bytes] = {}
    for epoch, sizes in enumerate([*epochs, {}], start=1):
        with shard_of(store, files, head, scratch) as shard:
            assert not shard.was_rebuilt
            (opened,) = store.open([0])
            long = [len(each) for each in expected.values() if len(each) > piece]
            assert opened.sizes[Structure.PIECES] == sum((each - 1) // piece for each in long)
            assert dict(shard.records.scan(PREFIX)) == expected
            for number, size in sizes.items():
                key = PREFIX + numbered(number)
                assert shard.records.get(key) == expected.get(key)
                if size is None:
                    shard.records.delete(key)
                    expected.pop(key, None)
                else:
                    expected[key] = content(size, epoch)
                    shard.records.put(key, expected[key])
            head = shard.seal(ShardVersion(epoch, epoch))


def shard_of(store: KeyStore, files: Files, head: KeyedHead, scratch: Path) -> KeyedShard:
    return KeyedShard(store, [0], 1, KeyedDeltas(files, name_of, 0, head), scratch)


def content(size: int, seed: int) -> bytes:
    """Return bytes of which each piece differs from the others."""
    return b"".join(b"%d of %d," % (seed, each) for each in range(size // 5 + 1))[:size]

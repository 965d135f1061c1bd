"""The tag of a local copy says which version it is, or the copy is not used."""

from contextlib import closing
from pathlib import Path

import lmdb

from beam_spark_runner.state import local_copy
from beam_spark_runner.state.chain import Chain, ChainedDelta, ShardVersion, SliceStart

VERSION = ShardVersion(7, 12)
CHAIN: Chain = (ChainedDelta(VERSION, 10, SliceStart(0, b"key")),)


def is_used(folder: Path, tag: bytes) -> bool:
    opened = lmdb.open(str(folder), map_size=16 << 20, max_dbs=1, lock=False)
    with closing(opened), opened.begin(write=True) as txn:
        txn.put(b"tag", tag)
    copy = local_copy.open_copy(folder, VERSION)
    if copy is None:
        return False
    copy.txn.abort()
    copy.env.close()
    return True


def test_a_copy_with_a_damaged_tag_is_not_used(tmp_path: Path) -> None:
    """It is made again from deltas, which carry digests."""
    folder = tmp_path / "copy"
    local_copy.rebuild(folder, Path.open, lambda version: "", None)  # type: ignore[arg-type]
    tag = local_copy._tag(CHAIN)
    assert is_used(folder, tag)
    for place in range(len(tag)):
        changed = bytearray(tag)
        changed[place] ^= 1 << place % 8
        assert not is_used(folder, bytes(changed))
    assert not any(is_used(folder, tag[:length]) for length in range(len(tag)))

"""Undoes the last commit of a local copy: LMDB still has the state before it.

LMDB never writes over a page that belongs to the last commit or to the one before. Two *meta pages*
at the beginning of its file take turns, and each leads to a tree that is whole until the commit
after the next one. So an undo record costs nothing when a version is sealed: it is the other meta
page. To undo a commit is to take the number of its transaction away. Then whoever opens the file
finds the other meta page to be the newer one, however much the commit has changed. It leads to the
tag of the version before, too, by which it is known.

Source: struct MDB_meta, mdb_env_pick_meta, mdb_page_alloc and mdb_find_oldest in mdb.c of LMDB 0.9.
LMDB 1.0 opens a file in this way if it is asked to (MDB_PREVSNAPSHOT).
"""

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

# Of a meta page: its header (number, unused, flags, bounds); magic, format, address, size of the
# map, size of pages, the rest of two trees, the last page that is used.
_META = struct.Struct("=QHHI IIQQ I44s48s Q")
_TRANSACTION = struct.Struct("=Q")  # follows
_IS_META, _MAGIC, _FORMAT = 0x08, 0xBEEFC0DE, 1


class _MetaPage(NamedTuple):
    transaction: int
    place: int  # of the number of the transaction in the file
    page_bytes: int


def undo_last_commit(folder: Path) -> bool:
    """Have an LMDB environment be what it was before its last commit.

    Args:
        folder: of the environment, which nobody has open.

    Returns:
        False: it is as before. There is nothing to go back to, since the last commit was the
        first one or follows on one that was undone, or the file is not as it should be.

    Raises:
        OSError: the disk does not work.
    """
    with (folder / "data.mdb").open("r+b") as file:
        one = _meta_page(file, 0)
        other = None if one is None else _meta_page(file, one.page_bytes)
        if one is None or other is None:
            return False
        before, last = sorted((one, other))
        if before.transaction == 0 or last.transaction != before.transaction + 1:
            return False
        file.seek(last.place)
        file.write(_TRANSACTION.pack(0))
    return True


def _meta_page(file: BinaryIO, start: int) -> _MetaPage | None:
    """Read the meta page that begins at a place; None: there is none."""
    file.seek(start)
    content = file.read(_META.size + _TRANSACTION.size)
    if len(content) < _META.size + _TRANSACTION.size:
        return None
    _, _, flags, _, magic, format_, _, _, page_bytes, *_ = _META.unpack_from(content)
    if not flags & _IS_META or (magic, format_) != (_MAGIC, _FORMAT):
        return None
    (transaction,) = _TRANSACTION.unpack_from(content, _META.size)
    return _MetaPage(transaction, start + _META.size, page_bytes)

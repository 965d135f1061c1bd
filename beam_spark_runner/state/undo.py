"""Undoes the last commit of a local copy: LMDB still has the state before it.

LMDB never overwrites a page that belongs to the last commit or to the previous one. Two *meta
pages* at the beginning of its file alternate, and the tree of each is complete until the commit
after the next one. So no undo record has to be written: the other meta page is one. To undo a
commit is to set the transaction number in its meta page to 0. LMDB then takes the other meta page
for the newest one, however much the commit has changed. Its tree includes the tag of the previous
version, which tells which version the copy now has.

Source: struct MDB_meta, mdb_env_pick_meta, mdb_page_alloc and mdb_find_oldest in mdb.c of LMDB 0.9.
LMDB 1.0 has a flag to open a file in this way (MDB_PREVSNAPSHOT).
"""

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

# A meta page: its header (number, unused, flags, bounds), magic, format, address, size of the map,
# size of pages, the remaining fields of two trees, the last page in use.
_META = struct.Struct("=QHHI IIQQ I44s48s Q")
_TRANSACTION = struct.Struct("=Q")  # the transaction number, after these fields
_IS_META, _MAGIC, _FORMAT = 0x08, 0xBEEFC0DE, 1


class _MetaPage(NamedTuple):
    transaction: int
    place: int  # offset of the transaction number in the file
    page_bytes: int


def undo_last_commit(folder: Path) -> bool:
    """Restore an LMDB environment to its state before the last commit.

    Args:
        folder: The folder of the environment, which must not be open.

    Returns:
        Whether the commit was undone. It is not if it was the first commit or the first one
        after an undone commit, or if the file is damaged.

    Raises:
        OSError: The disk does not work.
    """
    with (folder / "data.mdb").open("r+b") as file:
        first = _meta_page(file, 0)
        second = None if first is None else _meta_page(file, first.page_bytes)
        if first is None or second is None:
            return False
        previous, last = sorted((first, second))
        if previous.transaction == 0 or last.transaction != previous.transaction + 1:
            return False
        file.seek(last.place)
        file.write(_TRANSACTION.pack(0))
    return True


def _meta_page(file: BinaryIO, start: int) -> _MetaPage | None:
    """Read the meta page at an offset; None: there is no valid one."""
    file.seek(start)
    content = file.read(_META.size + _TRANSACTION.size)
    if len(content) < _META.size + _TRANSACTION.size:
        return None
    _, _, flags, _, magic, format_, _, _, page_bytes, *_ = _META.unpack_from(content)
    if not flags & _IS_META or (magic, format_) != (_MAGIC, _FORMAT):
        return None
    (transaction,) = _TRANSACTION.unpack_from(content, _META.size)
    return _MetaPage(transaction, start + _META.size, page_bytes)

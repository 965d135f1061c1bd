"""Packs: the small records of one user key, as one value in the state store.

Records that do not fit are *outlying*: each is a value by itself, and the pack has their number.
"""

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

LARGEST_RECORD = 255
"""The most bytes of name and value of a record in a pack."""

LARGEST_PACK = 2 << 10
"""The most bytes of a pack's records."""

_OUTLYING = struct.Struct(">Q")
_RECORD = struct.Struct(">BB")  # lengths of name and value


class Pack(NamedTuple):
    """The records of a user key.

    Attributes:
        records: The values of records by their names: what follows the user key in ``store_keys``,
            after the kind of the record.
        outlying: How many records are not in the pack.
    """

    records: Mapping[bytes, bytes] = {}
    outlying: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the key has no records."""
        return not (self.records or self.outlying)


class ChangedPack(NamedTuple):
    """A pack after changes.

    Attributes:
        pack: The pack.
        outlying: The changes of outlying records by their names; None: it is removed.
    """

    pack: Pack
    outlying: Mapping[bytes, bytes | None]


def encode(pack: Pack) -> bytes:
    """Encode a pack; equal packs have equal encodings."""
    parts = [_OUTLYING.pack(pack.outlying)]
    for name in sorted(pack.records):
        value = pack.records[name]
        parts += (_RECORD.pack(len(name), len(value)), name, value)
    return b"".join(parts)


def decode(coded: bytes) -> Pack:
    """Decode a pack."""
    (outlying,) = _OUTLYING.unpack_from(coded)
    records: dict[bytes, bytes] = {}
    position, end = _OUTLYING.size, len(coded)
    while position < end:
        name_length, value_length = _RECORD.unpack_from(coded, position)
        middle = position + _RECORD.size + name_length
        position = middle + value_length
        records[coded[middle - name_length : middle]] = coded[middle:position]
    return Pack(records, outlying)


def changed(
    pack: Pack, changes: Mapping[bytes, bytes | None], are_outlying: Collection[bytes]
) -> ChangedPack:
    """Change records of a pack. A record that no longer fits becomes outlying, and vice versa.

    Args:
        pack: The pack without the changes.
        changes: New values of records by their names; None: it is removed.
        are_outlying: Which of the changed records are outlying in it.
    """
    records, outlying = dict(pack.records), pack.outlying
    size = sum(len(name) + len(value) for name, value in records.items())
    elsewhere: dict[bytes, bytes | None] = {}
    for name, value in changes.items():
        old = records.pop(name, None)
        if old is not None:
            size -= len(name) + len(old)
        was_outlying = name in are_outlying
        length = len(name) + len(value or b"")
        if value is not None and length <= LARGEST_RECORD and size + length <= LARGEST_PACK:
            records[name] = value
            size += length
            value = None
        if value is not None:
            elsewhere[name] = value
            outlying += not was_outlying
        elif was_outlying:
            elsewhere[name] = None
            outlying -= 1
    return ChangedPack(Pack(records, outlying), elsewhere)

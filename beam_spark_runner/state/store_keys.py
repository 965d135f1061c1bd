"""The keys of records in a shard, and their order.

A key begins with the stage and the kind of the record. If the record belongs to a user key, the
hash of this follows, so that the store is read in the order in which the rows of an exchange come.
Long parts are replaced by digests, since LMDB's keys have at most 511 bytes; where the part itself
is needed, the value of a record has it.
"""

import struct
from functools import lru_cache

from beam_spark_runner.core import routing
from beam_spark_runner.state.backend import Cell

_LONGEST_PART = 128
_STAGE = struct.Struct(">H")
_NUMBER = struct.Struct(">Q")
_SIGN = 1 << 63
HASH_BYTES = routing.HASH_BITS // 8  # of a user key's hash in a record's key
NAME_BYTES = 8
IS_DIGEST = 0xFF  # in place of a length
_CELLS, _TIMERS, _DUE, _HOLDS = b"c", b"t", b"d", b"h"


class StoreKeys:
    """The keys of one stage's records.

    Args:
        stage: The number of the stage.
        own_transform: The id of a transform that is the same in all versions of a pipeline, for
            records that are not copied when ids change; empty: there is none.

    Attributes:
        stage: The prefix of the keys of all records of the stage.
    """

    def __init__(self, stage: int, own_transform: str = "") -> None:
        self.stage = _STAGE.pack(stage)
        self._own_transform = own_transform
        self._cells, self._timers, self._due, self._holds = (
            self.stage + kind for kind in (_CELLS, _TIMERS, _DUE, _HOLDS)
        )

    def user_key(self, key: bytes) -> bytes:
        """Return how a user key is encoded in records' keys."""
        return _key_part(key)

    def of_key(self, key: bytes) -> bytes:
        """Return the prefix of all cells of a key."""
        return self._cells + _key_part(key)

    def of_window(self, transform: str, window: bytes, key: bytes) -> bytes:
        """Return the prefix of all cells of a key and window in a transform."""
        return self.of_key(key) + self._name(transform) + part(window)

    def of_cell(self, cell: Cell) -> bytes:
        """Return the prefix of all records of a cell, which is also the key of one of them."""
        return self.of_window(cell.transform, cell.window, cell.key) + _name(cell.state)

    def cells(self, hashed: int = 0) -> tuple[bytes, bytes]:
        """Return the prefix of all cells, and the least key of cells from a hash on."""
        return self._cells, self._cells + hashed.to_bytes(HASH_BYTES, "big")

    def owner_of_cell(self, record: bytes) -> bytes:
        """Return the owner of a cell from the key of one of its records. See ``owner``."""
        start = len(self._cells)
        length = record[start + HASH_BYTES]
        end = start + HASH_BYTES + 1 + (routing.DIGEST_BYTES if length == IS_DIGEST else length)
        return record[start : end + NAME_BYTES]

    def cell_in(self, record: bytes, transform: str, transform_now: str) -> bytes:
        """Convert the key of a cell's record in another stage to that in this stage.

        Args:
            record: The key of the record in the other stage.
            transform: The id of a transform there.
            transform_now: The id of that transform here. Ids of other transforms are the same.
        """
        end = len(self._cells) + len(self.owner_of_cell(record))
        start = end - NAME_BYTES
        name = record[start:end]
        if name == _name(transform):
            name = _name(transform_now)
        return self._cells + record[len(self._cells) : start] + name + record[end:]

    def timers_of_key(self, key: bytes) -> bytes:
        """Return the prefix of the timers of a key in all transforms."""
        return self._timers + _key_part(key)

    def owner(self, transform: str, key: bytes) -> bytes:
        """Encode a key and transform, which own timers, as a part of records' keys."""
        return _key_part(key) + self._name(transform)

    def named(self, transform: str) -> str:
        """Return by which name a transform is stored."""
        return "" if transform == self._own_transform else transform

    def transform_of(self, name: str) -> str:
        """Return the id of the transform that is stored by a name."""
        return name or self._own_transform

    def _name(self, transform: str) -> bytes:
        return _name(self.named(transform))

    def timers(self, owner: bytes) -> bytes:
        """Return the prefix of the timers of an owner; the numbers of the timers follow it."""
        return self._timers + owner

    def owner_of_timer(self, record: bytes) -> bytes:
        """Return the owner of a timer from the key of its record."""
        return record[len(self._timers) : -_NUMBER.size]

    def due_in(self, domain: bytes) -> bytes:
        """Return the prefix of the due times of a domain, which sort by time."""
        return self._due + domain

    def due(self, domain: bytes, time_us: int, owner: bytes) -> bytes:
        """Return the key of the index record of an owner's first due time in a domain."""
        return self.due_in(domain) + ordered(time_us) + owner

    def due_time(self, record: bytes) -> int:
        """Return the time in a key that ``due`` returned."""
        start = len(self._due) + 1
        return time_of(record[start : start + _NUMBER.size])

    def holds(self) -> bytes:
        """Return the prefix of all holds, which sort by time."""
        return self._holds

    def hold(self, time_us: int) -> bytes:
        """Return the key of the record that counts the owners whose least hold is a time.

        Where holders are listed, the owner follows it.
        """
        return self._holds + ordered(time_us)

    def hold_time(self, record: bytes) -> int:
        """Return the time in a key that begins as ``hold`` returned it."""
        start = len(self._holds)
        return time_of(record[start : start + _NUMBER.size])


def part(content: bytes) -> bytes:
    """Encode content as a part of a record's key; no encoded part is a prefix of another one."""
    if len(content) <= _LONGEST_PART:
        return bytes([len(content)]) + content
    return bytes([IS_DIGEST]) + routing.digest_of(content)


def ordered(number: int) -> bytes:
    """Encode a signed number as eight bytes that sort like the number."""
    return _NUMBER.pack(number + _SIGN)


def numbered(number: int) -> bytes:
    """Encode a number that is not negative as eight bytes that sort like the number."""
    return _NUMBER.pack(number)


def number_of(record: bytes) -> int:
    """Return the number that ``numbered`` encoded at the end of a key."""
    number: int = _NUMBER.unpack_from(record, len(record) - _NUMBER.size)[0]
    return number


def time_of(coded: bytes) -> int:
    """Return the number that ``ordered`` encoded."""
    number: int = _NUMBER.unpack(coded)[0] - _SIGN
    return number


def hash_of(key: bytes) -> int:
    """Return the hash of an encoded key by which the exchange of its elements is partitioned."""
    return routing.route_of_key(key, 0) & routing.HASH_MASK


def hash_of_owner(owner: bytes) -> int:
    """Return the hash of an owner's key, see ``StoreKeys.owner``."""
    return int.from_bytes(owner[:HASH_BYTES], "big")


def hash_of_name(owner: bytes) -> int:
    """Return a hash of an owner's transform, see ``StoreKeys.owner``."""
    return int.from_bytes(owner[-NAME_BYTES:][:HASH_BYTES], "big")


@lru_cache(4)  # a key's records are read and written together
def _key_part(key: bytes) -> bytes:
    return hash_of(key).to_bytes(HASH_BYTES, "big") + part(key)


@lru_cache(1_000)
def _name(name: str) -> bytes:
    return routing.digest_of(name.encode())[:NAME_BYTES]

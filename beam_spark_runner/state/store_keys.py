"""The keys of records in a shard, and their order.

A key begins with the stage and the kind of the record. Whatever belongs to a user's key goes on
with its hash, so that the store is read in the order in which the rows of an exchange come. Long
parts are digests, since LMDB's keys have at most 511 bytes; whoever lists them stores them whole.
"""

import struct
from functools import lru_cache

from beam_spark_runner.core import routing
from beam_spark_runner.state.backend import Cell

_LONGEST_PART = 128
_STAGE = struct.Struct(">H")
_NUMBER = struct.Struct(">Q")
_SIGN = 1 << 63
HASH_BYTES = routing.HASH_BITS // 8  # in a record's key
_NAME_BYTES = 8
_IS_DIGEST = 0xFF  # in place of a length
_CELLS, _TIMERS, _DUE, _HOLDS = b"c", b"t", b"d", b"h"


class StoreKeys:
    """The keys of one stage's records."""

    def __init__(self, stage: int) -> None:
        self.stage = _STAGE.pack(stage)  # all records begin with it
        self._cells, self._timers, self._due, self._holds = (
            self.stage + kind for kind in (_CELLS, _TIMERS, _DUE, _HOLDS)
        )

    def of_key(self, key: bytes) -> bytes:
        """All cells of a key begin with it."""
        return self._cells + _key_part(key)

    def of_window(self, transform: str, window: bytes, key: bytes) -> bytes:
        """All cells of a key and window in a transform begin with it."""
        return self.of_key(key) + _name(transform) + part(window)

    def of_cell(self, cell: Cell) -> bytes:
        """All records of a cell begin with it; one is it."""
        return self.of_window(cell.transform, cell.window, cell.key) + _name(cell.state)

    def cells(self, hashed: int = 0) -> tuple[bytes, bytes]:
        """Return with what all cells begin, and the beginning of those from a hash on."""
        return self._cells, self._cells + hashed.to_bytes(HASH_BYTES, "big")

    def owner_of_cell(self, record: bytes) -> bytes:
        """Return whose cell a record belongs to. See ``owner``."""
        start = len(self._cells)
        length = record[start + HASH_BYTES]
        after = start + HASH_BYTES + 1 + (routing.DIGEST_BYTES if length == _IS_DIGEST else length)
        return record[start : after + _NAME_BYTES]

    def cell_in(self, record: bytes, transform: str, transform_now: str) -> bytes:
        """Return the key that a cell's record of another stage has in this one.

        Args:
            record: in the other stage.
            transform: id of a transform there.
            transform_now: the id that it has here. Those of others are the same.
        """
        end = len(self._cells) + len(self.owner_of_cell(record))
        start = end - _NAME_BYTES
        name = record[start:end]
        if name == _name(transform):
            name = _name(transform_now)
        return self._cells + record[len(self._cells) : start] + name + record[end:]

    def timers_of_key(self, key: bytes) -> bytes:
        """The timers of a key, in all transforms, begin with it."""
        return self._timers + _key_part(key)

    def owner(self, transform: str, key: bytes) -> bytes:
        """Say in a part of keys whose timers they are: a key's, in a transform."""
        return _key_part(key) + _name(transform)

    def timers(self, owner: bytes) -> bytes:
        """The timers of a key in a transform begin with it; their numbers follow."""
        return self._timers + owner

    def owner_of_timer(self, record: bytes) -> bytes:
        """Return whose timer a record is that begins with ``timers``."""
        return record[len(self._timers) : -_NUMBER.size]

    def due_in(self, domain: bytes) -> bytes:
        """All due times of a domain begin with it, and follow in the order of time."""
        return self._due + domain

    def due(self, domain: bytes, time_us: int, owner: bytes) -> bytes:
        """When a key is due in a transform."""
        return self.due_in(domain) + ordered(time_us) + owner

    def due_time(self, record: bytes) -> int:
        """Return the time of a key of ``due``."""
        start = len(self._due) + 1
        return time_of(record[start : start + _NUMBER.size])

    def holds(self) -> bytes:
        """All holds begin with it, and follow in the order of time."""
        return self._holds

    def hold(self, time_us: int) -> bytes:
        """How many hold a time."""
        return self._holds + ordered(time_us)

    def hold_time(self, record: bytes) -> int:
        """Return the time of a key of ``hold``."""
        return time_of(record[len(self._holds) :])


def part(content: bytes) -> bytes:
    """Return a part of a key that is no beginning of another one."""
    if len(content) <= _LONGEST_PART:
        return bytes([len(content)]) + content
    return bytes([_IS_DIGEST]) + routing.digest_of(content)


def ordered(number: int) -> bytes:
    """Return eight bytes that sort as the signed number does."""
    return _NUMBER.pack(number + _SIGN)


def numbered(number: int) -> bytes:
    """Return eight bytes that sort as the number does, which is not negative."""
    return _NUMBER.pack(number)


def number_of(record: bytes) -> int:
    """Return the number of ``numbered`` with which a key ends."""
    number: int = _NUMBER.unpack_from(record, len(record) - _NUMBER.size)[0]
    return number


def time_of(coded: bytes) -> int:
    """Return the number of ``ordered``."""
    number: int = _NUMBER.unpack(coded)[0] - _SIGN
    return number


def hash_of(key: bytes) -> int:
    """Hash an encoded key as the exchange does that brings its elements."""
    return routing.route_of_key(key, 0) & routing.HASH_MASK


def hash_of_owner(owner: bytes) -> int:
    """Return the hash of the key, see ``StoreKeys.owner``."""
    return int.from_bytes(owner[:HASH_BYTES], "big")


def hash_of_name(owner: bytes) -> int:
    """Return a hash of the transform, see ``StoreKeys.owner``."""
    return int.from_bytes(owner[-_NAME_BYTES:][:HASH_BYTES], "big")


@lru_cache(4)  # a key's records are read and written together
def _key_part(key: bytes) -> bytes:
    return hash_of(key).to_bytes(HASH_BYTES, "big") + part(key)


@lru_cache(1_000)
def _name(name: str) -> bytes:
    return routing.digest_of(name.encode())[:_NAME_BYTES]

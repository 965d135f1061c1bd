"""The places of a stage's keyed records in the state store, by the keys that ``store_keys`` makes.

A record of a user key is in the pack of that key, or outlying; records of due times and holds are
members of indexes. All of them are in the group to which the hash of the user key belongs.
"""

import functools
from typing import NamedTuple

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.routing import DIGEST_BYTES
from beam_spark_runner.state.remote.key_store import Structure
from beam_spark_runner.state.store_keys import HASH_BYTES, IS_DIGEST, NAME_BYTES

STAGE = 0
"""The number of the stage in the keys of keyed records; the store number takes its place."""

STAGE_BYTES = 2  # at the beginning of each record's key
TIMERS = b"t"
"""Begins the names of timers."""

_CELLS, _DUE, _HOLDS = b"c", b"d", b"h"
_TIME_BYTES = 8
_INDEXES = {b"de": Structure.EVENT, b"dp": Structure.CLOCK}
_PREFIXES = {Structure.EVENT: b"de", Structure.CLOCK: b"dp", Structure.HOLDS: b"h"}
_STRUCTURES = {each.value: each for each in Structure}
_GROUP_BYTES = 4


class RecordOfKey(NamedTuple):
    """The place of a record that belongs to a user key.

    Attributes:
        user_key: The user key, as ``store_keys`` encodes it.
        name: The kind of the record, and the rest of its key.
    """

    user_key: bytes
    name: bytes

    def key(self) -> bytes:
        """Return the record's key, without its stage."""
        return self.name[:1] + self.user_key + self.name[1:]


def is_of_key(record: bytes) -> bool:
    """Whether a record belongs to a user key; else it is in an index. Keys have no stage here."""
    return record[:1] in (_CELLS, TIMERS)


def record_of_key(record: bytes) -> RecordOfKey:
    """Split the key of a record that belongs to a user key, or a prefix with the whole user key."""
    end = _part_end(record, 1)
    if len(record) <= 1 + HASH_BYTES:
        raise InvariantError("keyed records in the state store are read by their user keys")
    return RecordOfKey(record[1:end], record[:1] + record[end:])


def split_user_key(content: bytes) -> RecordOfKey:
    """Split what ``RecordOfKey`` has, one after the other."""
    end = _part_end(content, 0)
    return RecordOfKey(content[:end], content[end:])


def index_of(record: bytes) -> tuple[Structure, bytes]:
    """Return the index of a record or prefix, and the rest of its key, by which it is sorted."""
    if record[:1] == _HOLDS:
        return Structure.HOLDS, record[1:]
    structure = _INDEXES.get(record[:2])
    if structure is None:
        raise InvariantError(f"a record of the kind {record[:2]!r} in the state store")
    return structure, record[2:]


def prefix_of(structure: Structure) -> bytes:
    """Return what precedes the name of an index's member in the record's key."""
    return _PREFIXES[structure]


def split_member(member: bytes) -> tuple[bytes, bytes]:
    """Split a member of an index into its name and the value of the record."""
    end = _part_end(member, _TIME_BYTES) + NAME_BYTES
    return member[:end], member[end:]


def user_key_in(member: bytes) -> bytes:
    """Return what begins with the user key to which a member of an index belongs."""
    return member[_TIME_BYTES:]


def delta_key(group: int, structure: Structure, name: bytes = b"") -> bytes:
    """Return the key of an entry's record in a keyed delta."""
    return _delta_prefix(group, structure) + name


@functools.lru_cache(1_000)  # a group's changes come together
def _delta_prefix(group: int, structure: Structure) -> bytes:
    return group.to_bytes(_GROUP_BYTES, "big") + structure.value


def split_delta_key(key: bytes) -> tuple[int, Structure, bytes]:
    """Return what ``delta_key`` was made from."""
    group = int.from_bytes(key[:_GROUP_BYTES], "big")
    return group, _STRUCTURES[key[_GROUP_BYTES : _GROUP_BYTES + 1]], key[_GROUP_BYTES + 1 :]


def _part_end(coded: bytes, start: int) -> int:
    """Return the end of an encoded user key that begins at a place."""
    length = coded[start + HASH_BYTES] if len(coded) > start + HASH_BYTES else IS_DIGEST
    return start + HASH_BYTES + 1 + (DIGEST_BYTES if length == IS_DIGEST else length)

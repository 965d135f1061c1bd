"""Records of a declarative step that an epoch has left in flight, in the shard until the next."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import RecordLeft
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer, pages
from beam_spark_runner.state.store_keys import hash_of

IN_FLIGHT = "in flight"
"""Takes the place of a transform id in the store; no step of the stage has this id."""
_NOBODY = b""  # stands for the key and the window of the records
_BAG = Bag(Cell(IN_FLIGHT, "records", _NOBODY, _NOBODY))
_PIECE_BYTES = 1 << 20
_HEADER = struct.Struct(">QqI")  # the hash of the key, the hold, and the size of what follows


class _Stored(NamedTuple):
    hashed: int
    hold_us: int
    coded: bytes


def has_left(store: StateBackend) -> bool:
    """Whether an epoch has left records.

    Args:
        store: The stage's records in the shard.
    """
    return bool(store.timers(IN_FLIGHT, _NOBODY))


def take_left(store: StateBackend) -> Sequence[bytes]:
    """Remove the records from the store, and return them in the order of each key.

    Args:
        store: The stage's records in the shard.
    """
    if not has_left(store):
        return ()
    records = [each.coded for each in _records(store)]
    store.clear(_BAG)
    store.set_timers(IN_FLIGHT, _NOBODY, ())
    return records


def store_left(store: StateBackend, records: Sequence[RecordLeft]) -> None:
    """Store records, after ``take_left``, and hold the watermark at the least of their holds.

    Args:
        store: The stage's records in the shard.
        records: The records; if there are none, nothing is stored.
    """
    _append(store, [_Stored(hash_of(each.key), each.hold_us, each.coded) for each in records])


def copy_left(source: StateBackend, target: StateBackend, goes: Callable[[int], bool]) -> None:
    """Copy stored records from an old shard to a new one, in their order.

    Args:
        source: The stage's records in the old shard.
        target: The stage's records in the new shard.
        goes: Whether records belong to the new shard, by the hash of their key.
    """
    _append(target, [each for each in _records(source) if goes(each.hashed)])


def _append(store: StateBackend, records: Sequence[_Stored]) -> None:
    if not records:
        return
    piece: list[bytes] = []
    size = 0
    for hashed, hold_us, coded in records:
        piece += (_HEADER.pack(hashed, hold_us, len(coded)), coded)
        size += _HEADER.size + len(coded)
        if size >= _PIECE_BYTES:
            store.append(_BAG, b"".join(piece))
            piece, size = [], 0
    if piece:
        store.append(_BAG, b"".join(piece))
    # It never fires, and the stage runs in the next epoch because it has it.
    holds = [timer.hold_us for timer in store.timers(IN_FLIGHT, _NOBODY)]
    hold_us = min(*holds, *(each.hold_us for each in records), MAX_US)
    timer = StoredTimer("", "", _NOBODY, Domain.EVENT_TIME, MAX_US, hold_us, b"")
    store.set_timers(IN_FLIGHT, _NOBODY, (timer,))


def _records(store: StateBackend) -> Iterator[_Stored]:
    for data in pages(store, _BAG):
        position = 0
        while position < len(data):
            hashed, hold_us, size = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            yield _Stored(hashed, hold_us, data[position : position + size])
            position += size

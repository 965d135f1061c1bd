"""Pieces: in the state store, a long outlying value is several entries, of at most 1 MB each.

A server of Redis takes at most 512 MB at once. In deltas, values are whole.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_spark_runner.state.remote.key_store import Change, Structure

PIECE_BYTES = 1 << 20
"""The most bytes of a piece. Values that were stored with another limit can be read, too."""

_NUMBER = struct.Struct(">I")


class FirstPiece(NamedTuple):
    """An outlying value as it is stored by the name of its record.

    Attributes:
        content: The first bytes of the value, or all of it.
        others: How many further pieces there are.
    """

    content: bytes
    others: int


def divided(change: Change) -> Iterator[Change]:
    """Yield the changes in the state store that a change of an entry consists of.

    The first piece comes first: it says to the store how many pieces of an earlier value remain.
    """
    structure, name, value = change
    if structure is not Structure.OUTLYING or value is None:
        yield change
        return
    others = max(0, len(value) - 1) // PIECE_BYTES
    yield Change(structure, name, _NUMBER.pack(others) + value[:PIECE_BYTES])
    for number in range(1, others + 1):
        start = number * PIECE_BYTES
        piece = value[start : start + PIECE_BYTES]
        yield Change(Structure.PIECES, piece_name(name, number), piece)


def first_piece(coded: bytes) -> FirstPiece:
    """Decode the value of an outlying record's entry."""
    (others,) = _NUMBER.unpack_from(coded)
    return FirstPiece(coded[_NUMBER.size :], others)


def names_of_others(name: bytes, others: int) -> Sequence[bytes]:
    """Return the names of the entries that have the further pieces of a value.

    Args:
        name: The name of the outlying record.
        others: See ``FirstPiece``.
    """
    return [piece_name(name, number) for number in range(1, others + 1)]


def piece_name(name: bytes, number: int) -> bytes:
    """Return the name of a further piece's entry; all numbers are equally long, so it is unique."""
    return name + _NUMBER.pack(number)

"""Changes bytes as a stranger would who knows Beam's coders: lengths, counts, windows, panes."""

import random
import struct
from collections.abc import Callable, Sequence

from beam_spark_runner.core.varint import coded_varint

LENGTHS = (
    b"\0",
    b"\x7f",
    coded_varint(1 << 14),
    coded_varint(1 << 28),
    coded_varint((1 << 31) - 1),
    coded_varint(1 << 31),
    coded_varint(1 << 32),
    coded_varint((1 << 63) - 1),
    coded_varint(1 << 63),
    coded_varint((1 << 64) - 1),  # -1
    coded_varint((1 << 64) - (1 << 31)),  # -2^31
    b"\x80" * 9 + b"\x02",  # 2^64
    b"\xff" * 10 + b"\x01",  # eleven bytes
    b"\x80" * 10 + b"\0",
    b"\x81\x80\0",  # 1, with more bytes than it needs
    b"\xff",  # cut off, at the end
)
"""Encoded lengths: none of them is that of what follows."""
COUNTS = tuple(
    struct.pack(">i", count)
    for count in (0, 1, 2, 1 << 10, 1 << 20, (1 << 20) + 1, (1 << 31) - 1, -1, -2, -(1 << 31))
)
TIMESTAMPS = tuple(
    struct.pack(">Q", number)
    for number in (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x7FDF3B645A1CAC08, 1 << 62)
)
PANES = (b"\0", b"\x0f", b"\x1f", b"\x2f", b"\x3f", b"\x10\x80", b"\x20\xff\xff", b"\xf0")
VALUES = (b"", b"\0", b"\x01", b"\xff" * 3, b"\xc3\x28", b"\xed\xa0\x80", b"a" * 200)
"""Short values; some are no UTF-8."""

Change = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def mutated(coded: bytes, random_: random.Random, others: Sequence[bytes]) -> bytes:
    """Change coded values.

    Args:
        coded: The encoding of a value, or of several, one after the other.
        random_: The source of all decisions.
        others: Other encodings, to splice with.
    """
    if random_.random() < 0.1:
        return _composed(random_)
    changed = bytearray(coded)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        random_.choice(_CHANGES)(changed, random_, others)
    return bytes(changed)


def _cut(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    if changed:
        del changed[random_.randrange(len(changed)) :]


def _cut_at_the_begin(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    del changed[: random_.choice((1, 4, 8))]


def _extend(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    changed += random_.choice((*VALUES, *LENGTHS, *COUNTS, bytes(changed)))


def _empty(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    changed.clear()


def _change_length(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    """Replace a varint that may be the length of what follows."""
    places = [place for place, byte in enumerate(changed[:200]) if place + byte < len(changed)]
    place = random_.choice(places) if places else 0
    end = place
    while end < len(changed) and changed[end] > 0x7F:
        end += 1
    changed[place : end + 1] = random_.choice(LENGTHS)


def _change_count(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    """Replace four bytes that may be the count of windows or of elements."""
    place = changed.find(b"\0\0\0") if random_.random() < 0.5 else 8
    changed[place : place + 4] = random_.choice(COUNTS)


def _change_pane(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    """Replace a byte that may be a pane, as the one after timestamp and count."""
    place = changed.find(b"\x0f") if random_.random() < 0.5 else 12
    changed[place : place + 1] = random_.choice(PANES)


def _change_time(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    place = changed.find(b"\x80\0") if random_.random() < 0.5 else 0
    changed[place : place + 8] = random_.choice(TIMESTAMPS)


def _flip(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    if changed:
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)


def _replace(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    if changed:
        changed[random_.randrange(len(changed))] = random_.randrange(256)


def _insert(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    place = random_.randrange(len(changed) + 1)
    changed[place:place] = random_.choice((*VALUES, *LENGTHS, *COUNTS, *TIMESTAMPS))


def _repeat(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    """Take a part of it once more, elsewhere."""
    start = random_.randrange(len(changed) + 1)
    place = random_.randrange(len(changed) + 1)
    changed[place:place] = changed[start : start + random_.choice((1, 4, 8, 50))]


def _splice(changed: bytearray, random_: random.Random, others: Sequence[bytes]) -> None:
    if others:
        other = random_.choice(others)
        changed[random_.randrange(len(changed) + 1) :] = other[random_.randrange(len(other) + 1) :]


_CHANGES: tuple[Change, ...] = (
    *(_cut, _cut_at_the_begin, _extend, _empty, _change_length, _change_length, _change_length),
    *(_change_count, _change_count, _change_pane, _change_time, _flip, _flip, _replace),
    *(_insert, _repeat, _splice),
)


def _composed(random_: random.Random) -> bytes:
    """Put together what looks like values with timestamp, windows and pane, as little as it may."""
    pieces: list[bytes] = []
    for _ in range(random_.choice((1, 1, 2, 5))):
        if random_.random() < 0.6:
            pieces.append(random_.choice((*TIMESTAMPS, random_.randbytes(8))))
            pieces.append(random_.choice((*COUNTS[:3], *COUNTS)))
            if random_.random() < 0.5:
                pieces += (random_.choice(TIMESTAMPS), random_.choice((b"\x05", *LENGTHS)))
            pieces.append(random_.choice((b"\x0f", *PANES)))
        for _ in range(random_.choice((0, 1, 2, 3, 5))):
            value = random_.choice(VALUES)
            length = coded_varint(len(value))
            pieces += (random_.choice((length, length, length, *LENGTHS)), value)
    return b"".join(pieces)

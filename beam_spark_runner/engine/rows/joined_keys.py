"""Joins key and window, or key and value, in one column of bytes."""

import struct

_LENGTH = struct.Struct("<I")


def join_key(coded_key: bytes, coded_window: bytes) -> bytes:
    """Return one byte string, which is equal for equal pairs only."""
    return coded_key + coded_window + _LENGTH.pack(len(coded_key))


def split_key(joined: bytes) -> tuple[bytes, bytes]:
    """Undo ``join_key``: (key, window)."""
    (length,) = _LENGTH.unpack_from(joined, len(joined) - _LENGTH.size)
    return joined[:length], joined[length : -_LENGTH.size]


def put_before(coded_key: bytes, value: bytes) -> bytes:
    """Return a value with its key before it, if that is too long for the key column."""
    return _LENGTH.pack(len(coded_key)) + coded_key + value


def key_end(value: bytes) -> int:
    """Return the offset of the value itself, after ``put_before``."""
    (length,) = _LENGTH.unpack_from(value)
    return int(_LENGTH.size + length)


def key_before(value: bytes) -> bytes:
    """Return the key that precedes the value."""
    return value[_LENGTH.size : key_end(value)]

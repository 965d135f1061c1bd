"""Keys in dictionaries: as equal as their encodings, which is Beam's equality, and not Python's.

In Python ``True == 1 == 1.0`` and ``0.0 == -0.0``, and classes of users define equality as they
please; their encodings differ, so that Beam takes them for different keys.
"""

from collections.abc import Hashable
from typing import Any

from apache_beam.coders import (
    BooleanCoder,
    BytesCoder,
    Coder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
)

PLAIN = frozenset({str, bytes, int, type(None)})
"""Types whose values are equal if their encodings are, as long as no value of another type is
among them. Whoever has very many keys looks a type up here before a call of ``place``."""
_CODED = object()
_OF_ONE_TYPE = (StrUtf8Coder, BytesCoder, VarIntCoder, BooleanCoder)


class Places:
    """Finds what stands for a key in a dictionary: the key itself, or its encoding.

    Args:
        coder: The coder of the keys.

    Attributes:
        are_keys: Whether Python's equality of all keys of this coder is that of their encodings,
            so that each key stands for itself.
    """

    def __init__(self, coder: Coder) -> None:
        self.are_keys = _is_of_one_type(coder)
        impl = coder.get_impl()
        self._encode, self._decode = impl.encode, impl.decode

    def place(self, key: Any) -> Hashable:
        """Return what stands for a key."""
        if self.are_keys or _is_plain(key):
            return key  # type: ignore[no-any-return]
        return self._encode(key), _CODED

    def key(self, place: Any) -> Any:
        """Return the key for which something stands, or an equal one."""
        if type(place) is tuple and len(place) == 2 and place[1] is _CODED:
            return self._decode(place[0])
        return place


def _is_of_one_type(coder: Coder) -> bool:
    if isinstance(coder, TupleCoder):
        return all(map(_is_of_one_type, coder.coders()))
    return type(coder) in _OF_ONE_TYPE


def _is_plain(key: Any) -> bool:
    if type(key) is not tuple:
        return type(key) in PLAIN
    for part in key:  # noqa: SIM110  (twice as fast as a generator)
        if type(part) not in PLAIN and not _is_plain(part):
            return False
    return True

"""Keys in dictionaries: as equal as their encodings, which is Beam's equality, and not Python's.

In Python ``True == 1 == 1.0`` and ``0.0 == -0.0``, and classes of users define equality as they
please; their encodings differ, so that they are different keys in Beam.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from apache_beam.coders import (
    BooleanCoder,
    BytesCoder,
    Coder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
)

_PLAIN = frozenset({str, bytes, int, type(None)})
"""Types whose values are equal if their encodings are, as long as no value of another type is
among them."""
_CODED = object()
_BOOLS = ((False, bool), (True, bool))
_OF_ONE_TYPE = (StrUtf8Coder, BytesCoder, VarIntCoder, BooleanCoder)


class Places:
    """Finds what stands for a key in a dictionary: the key itself, or a place made for it.

    Most keys stand for themselves. Callers with very many keys ask for the kind of each chunk of
    them, and call ``place`` only for keys of other types.

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
        self._has_made_places = False

    def kind(self, values: Sequence[Any]) -> type | None:
        """Return a type of which all keys of a chunk of KVs stand for themselves, or None.

        It is the type of the first key, which is that of all keys in most chunks.
        """
        try:
            first = values[0][0]
            kind = type(first)
            if self.are_keys or kind in _PLAIN:
                return kind
            if kind is tuple and _PLAIN.issuperset(types := [*map(type, first)]):
                return tuple if _have_types(values, types) else None
        except (LookupError, TypeError, ValueError):  # several types of keys, or no KVs
            pass
        return None

    def place(self, key: Any) -> Hashable:
        """Return what stands for a key."""
        kind = type(key)
        if kind is float and (key > 0 or key < 0):  # neither a zero nor a NaN
            self._has_made_places = True
            # Equal to no other place: complex keys are encoded.
            return key + 1j  # type: ignore[no-any-return]
        if kind in _PLAIN or self.are_keys or (kind is tuple and _is_plain(key)):
            return key  # type: ignore[no-any-return]
        self._has_made_places = True
        return _BOOLS[key] if kind is bool else (self._encode(key), _CODED)

    def key(self, place: Any) -> Any:
        """Return the key for which something stands, or an equal one."""
        if type(place) is complex:
            return place.real
        if type(place) is not tuple or len(place) != 2:
            return place
        first, mark = place
        if mark is _CODED:
            return self._decode(first)
        return first if mark is bool else place

    def keyed(self, entries: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return entries with keys, of entries with what stands for keys."""
        if not self._has_made_places:
            return entries
        return [(self.key(place), value) for place, value in entries]


def _have_types(values: Sequence[tuple[tuple[Any, ...], Any]], types: list[type]) -> bool:
    """Whether the parts of all keys are of some types. Anything may be unpacked for a tuple."""
    if len(types) == 2:
        first, second = types
        for (one, other), _ in values:
            if type(one) is not first or type(other) is not second:
                return False
        return True
    for key, _ in values:  # noqa: SIM110  (twice as fast as a generator)
        if [*map(type, key)] != types:
            return False
    return True


def _is_of_one_type(coder: Coder) -> bool:
    if isinstance(coder, TupleCoder):
        return all(map(_is_of_one_type, coder.coders()))
    return type(coder) in _OF_ONE_TYPE


def _is_plain(key: tuple[Any, ...]) -> bool:
    for part in key:
        if type(part) not in _PLAIN and not (type(part) is tuple and _is_plain(part)):
            return False
    return True

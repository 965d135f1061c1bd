"""Stores the keys of records in a form that sorts fast, and sorts them.

Python's sort dereferences two objects for each comparison, which are cache misses if there are many
objects. So numbers, bytes and strings are stored in contiguous memory here, and numpy or Arrow
sorts them. All other keys stay objects, which Python sorts.

Pickled by value, see ``functions``.
"""

import array
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MAX_EQUAL = 0.1  # share of equal prefixes above which all keys are sorted as a whole
_PREFIX = 8  # bytes
_MASKS = np.array([~(~0 << 8 * n) << 8 * (_PREFIX - n) for n in range(_PREFIX + 1)], np.uint64)
_PLACE_BYTES = 8 + 2 * 8  # memory of a number or an offset, and of sorting it
_OBJECT_BYTES = 8 + 48  # memory of a reference, and of sorting it
_FLAT = frozenset({int, float, str, bytes, bool, type(None)})

Places: TypeAlias = npt.NDArray[np.int64]


class Keys:
    """Keys of records, in the order in which they were added."""

    def __init__(self) -> None:
        self._column: KeyColumn | None = None

    @property
    def size_bytes(self) -> int:
        """See ``KeyColumn.size_bytes``."""
        return 0 if self._column is None else self._column.size_bytes

    def extend(self, keys: Sequence[Any]) -> None:
        """Add keys."""
        if not keys:
            return
        kinds = set(map(type, keys))
        if self._column is None or not self._column.takes(kinds):
            self._column = self._column_of(kinds)
        try:
            self._column.extend(keys)
        except (OverflowError, UnicodeEncodeError):  # over 64 bits; a lone surrogate
            self._column = Objects(self._column)
            self._column.extend(keys)

    def places(self, *, descends: bool) -> Places:
        """See ``KeyColumn.places``."""
        if self._column is None:
            return np.zeros(0, np.int64)
        return self._column.places(descends=descends)

    def _column_of(self, kinds: set[type]) -> "KeyColumn":
        if self._column is None and len(kinds) == 1:
            (kind,) = kinds
            return _COLUMNS.get(kind, Objects)()
        return Objects(self._column or ())


class KeyColumn(Protocol):
    """Keys in one representation."""

    @property
    def size_bytes(self) -> int:
        """The memory of the keys, with that which ``places`` needs, in bytes."""
        ...

    def takes(self, kinds: set[type]) -> bool:
        """Whether keys of these types can be added to the column."""
        ...

    def extend(self, keys: Sequence[Any]) -> None:
        """Add all keys or, if one does not fit, none of them.

        Raises:
            OverflowError: A number does not fit.
            UnicodeEncodeError: A string cannot be encoded in UTF-8.
        """
        ...

    def places(self, *, descends: bool) -> Places:
        """Return the indices of the keys in sorted order. The sort is stable.

        Raises:
            TypeError: Two keys have no order.
        """
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys in the order in which they were added."""
        ...


class _Numbers:
    def __init__(self, kind: type, code: Literal["q", "d"]) -> None:
        self._kinds = {kind}
        self._code = code
        self._values = array.array(code)

    @property
    def size_bytes(self) -> int:
        return len(self._values) * _PLACE_BYTES

    def takes(self, kinds: set[type]) -> bool:
        return kinds == self._kinds

    def extend(self, keys: Sequence[Any]) -> None:
        self._values.extend(array.array(self._code, keys))

    def places(self, *, descends: bool) -> Places:
        return _places_of_column(pa.array(np.asarray(self._values)), descends=descends)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)


class _Strings:
    """Bytes, or strings in UTF-8, whose bytes sort in the order of code points."""

    def __init__(self, kind: type) -> None:
        self._kinds = {kind}
        self._is_text = kind is str
        self._bytes = bytearray(_PREFIX)  # padding at the end, so that each key has a full prefix
        self._lengths = array.array("q")

    @property
    def size_bytes(self) -> int:
        return len(self._bytes) + len(self._lengths) * (8 + _PLACE_BYTES)

    def takes(self, kinds: set[type]) -> bool:
        return kinds == self._kinds

    def extend(self, keys: Sequence[Any]) -> None:
        coded = [*map(str.encode, keys)] if self._is_text else keys
        self._bytes[-_PREFIX:-_PREFIX] = b"".join(coded)
        self._lengths.extend(map(len, coded))

    def places(self, *, descends: bool) -> Places:
        lengths = np.asarray(self._lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        prefixes = self._prefixes(offsets[:-1], lengths)
        order: Places = np.argsort(~prefixes if descends else prefixes, kind="stable")
        prefixes = prefixes[order]
        is_as_before = prefixes[1:] == prefixes[:-1]
        if np.count_nonzero(is_as_before) > _MAX_EQUAL * len(order):
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
            column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(order), buffers)
            return _places_of_column(column, descends=descends)
        changes = np.flatnonzero(np.diff(is_as_before, prepend=False, append=False))
        for start, last in changes.reshape(-1, 2).tolist():
            equal = order[start : last + 1]
            keys = [bytes(self._bytes[offsets[i] : offsets[i + 1]]) for i in equal.tolist()]
            equal[:] = equal[_places_of_objects(keys, descends=descends)]
        return order

    def _prefixes(self, starts: Places, lengths: Places) -> npt.NDArray[np.uint64]:
        """Return the first bytes of each key as a number; short keys are padded with zeros."""
        windows = np.lib.stride_tricks.sliding_window_view(
            np.frombuffer(self._bytes, np.uint8), _PREFIX
        )
        prefixes = windows[starts].view(">u8").ravel().astype(np.uint64)
        prefixes &= _MASKS[np.minimum(lengths, _PREFIX)]
        return prefixes

    def __iter__(self) -> Iterator[Any]:
        start = 0
        for length in self._lengths:
            key = bytes(self._bytes[start : start + length])
            yield key.decode() if self._is_text else key
            start += length


class Objects:
    """Keys of any kind."""

    def __init__(self, keys: Iterable[Any] = ()) -> None:
        self._keys: list[Any] = []
        self.size_bytes = 0
        self.extend([*keys])

    def takes(self, _kinds: set[type]) -> bool:
        return True

    def extend(self, keys: Sequence[Any]) -> None:
        self._keys += keys
        self.size_bytes += _bytes_of(keys) + len(keys) * _OBJECT_BYTES

    def places(self, *, descends: bool) -> Places:
        return _places_of_objects(self._keys, descends=descends)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)


_COLUMNS: dict[type, Callable[[], KeyColumn]] = {
    int: lambda: _Numbers(int, "q"),
    float: lambda: _Numbers(float, "d"),
    bytes: lambda: _Strings(bytes),
    str: lambda: _Strings(str),
}


def is_nan(key: Any) -> bool:
    """Whether a key is a float that is not a number. Such keys come last, in either order."""
    return isinstance(key, float) and key != key


def _places_of_objects(keys: list[Any], *, descends: bool) -> Places:
    places: Sequence[int] = range(len(keys))
    last = [place for place in places if is_nan(keys[place])]
    if last:
        places = [place for place in places if not is_nan(keys[place])]
    in_order = sorted(places, key=keys.__getitem__, reverse=descends)
    return np.array(in_order + last, np.int64)


def _places_of_column(column: pa.Array, *, descends: bool) -> Places:
    order = "descending" if descends else "ascending"
    places: Places = pc.array_sort_indices(column, order=order).to_numpy().view(np.int64)
    return places


def _bytes_of(keys: Sequence[Any]) -> int:
    """Estimate the memory of keys. Parts are included, since keys keep those of elements alive."""
    if _FLAT.issuperset(map(type, keys)):
        return sum(map(sys.getsizeof, keys))
    return sum(map(_bytes_of_one, keys))


def _bytes_of_one(key: Any) -> int:
    parts: Iterable[Any] = ()
    if isinstance(key, tuple | list):
        parts = key
    elif hasattr(key, "__dict__"):
        parts = vars(key).values()
    return sys.getsizeof(key) + sum(map(_bytes_of_one, parts))

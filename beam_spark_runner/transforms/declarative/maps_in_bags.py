"""A map in a bag, for runners and harnesses that read no single entries.

Pickled by value (see ``declarative``).
"""

from collections.abc import Iterable
from typing import Any

from apache_beam.coders import BytesCoder, TupleCoder

_PRESENT = b"\1"  # begins a value; an empty one says that the key was removed
_FEW = 16  # changes that a bag may have in addition to its entries


class MapInBag:
    """A map from bytes to bytes. Each change is added to the bag; the last one of a key counts.

    Args:
        bag: A bag state of Beam, of pairs of ``CODER``.
    """

    CODER = TupleCoder((BytesCoder(), BytesCoder()))

    def __init__(self, bag: Any) -> None:
        self._bag = bag

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it has none."""
        return self._read().get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._bag.add((key, _PRESENT + value))

    def remove(self, key: bytes) -> None:
        """Remove a key."""
        if key in self._read():
            self._bag.add((key, b""))

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return the keys with their values."""
        return [*self._read().items()]

    def clear(self) -> None:
        """Remove all keys."""
        self._bag.clear()

    def _read(self) -> dict[bytes, bytes]:
        entries: dict[bytes, bytes] = {}
        changes = 0
        for key, value in self._bag.read():
            changes += 1
            if value:
                entries[key] = value[1:]
            else:
                entries.pop(key, None)
        if changes > 2 * len(entries) + _FEW:
            self._bag.clear()
            for key, value in entries.items():
                self._bag.add((key, _PRESENT + value))
        return entries

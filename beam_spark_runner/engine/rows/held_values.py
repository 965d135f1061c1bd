"""Values that a writer holds until there are several of the same key."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

ValuesByKey: TypeAlias = dict[bytes, list[bytes]]

MAX_HELD_BYTES = 64 << 20
_SAMPLE = 4096
_KEY_BYTES = 250  # of a key: its bytes object, its list, and its place in the dict
_VALUE_BYTES = 48  # of a value: its bytes object, and its place in the list


class Room:
    """How many bytes the writers of a task may hold together.

    Attributes:
        left_bytes: What is left. It may get negative by one batch of rows.
    """

    __slots__ = ("left_bytes",)

    def __init__(self, size_bytes: int = MAX_HELD_BYTES) -> None:
        self.left_bytes = size_bytes


class HeldValues:
    """The values of keys that come again after many other keys.

    A batch of rows may have one value of each key, and several batches many. Whether they have is
    found by a sample: as soon as half of its keys have come again, values are held. If half of the
    room could not hold what came in between, a key would get too few values, and none are held.

    Args:
        room: That of all writers of the task.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._by_key: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._size_bytes = 0
        self._longest = 0
        self._sample: set[bytes] = set()  # keys that have not come again
        self._few = 0  # when so many are left in the sample, values are held
        self._patience_bytes = room.left_bytes // 2
        self._holds: bool | None = None  # None: not decided

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def is_full(self) -> bool:
        """Whether the room of the task is used up."""
        return self._room.left_bytes <= 0

    def take(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bool:
        """Hold the rows of a batch, if enough of their keys come again.

        Args:
            keys: The encoded key of each row.
            values: Their values: short ones, see ``packed_rows.are_short``.

        Returns:
            Whether the rows are held. If not, the caller has them.
        """
        if self._holds is None:
            self._decide(keys, values)
        if not self._holds:
            return False
        by_key, known = self._by_key, len(self._by_key)
        for key, value in zip(keys, values, strict=True):
            by_key[key].append(value)
        new_keys = len(by_key) - known
        size = _size_of(values)
        if new_keys:
            size += new_keys * (_KEY_BYTES + sum(map(len, keys)) // len(keys))
        self._size_bytes += size
        self._room.left_bytes -= size
        self._longest = max(self._longest, max(map(len, values)))
        return True

    def _decide(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        if not self._sample:
            self._sample = set(keys[:_SAMPLE])
            self._few = len(self._sample) // 2
            return
        self._sample.difference_update(keys)
        self._patience_bytes -= _size_of(values) + _KEY_BYTES * len(keys)
        if len(self._sample) <= self._few:
            self._holds = True
        elif self._patience_bytes <= 0:
            self._holds = False
        if self._holds is not None:
            self._sample = set()

    def drain(self, bytes_at_once: int) -> Iterator[tuple[ValuesByKey, int]]:
        """Yield all values, and hold none.

        Args:
            bytes_at_once: About how many bytes of values are yielded together.

        Yields:
            Some keys with all their values, and the length of the longest value.
        """
        by_key, size = self._by_key, self._size_bytes
        self._by_key, self._size_bytes = defaultdict(list), 0
        self._room.left_bytes += size
        step = max(1, len(by_key) * bytes_at_once // max(1, size))
        rest = iter(by_key.items())
        while some := dict(islice(rest, step)):
            yield some, self._longest


def _size_of(values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + _VALUE_BYTES * len(values)

"""Sorted records in memory, and how the tests of what stands on them read and write."""

import bisect
from collections.abc import Iterator

from beam_spark_runner.state.backend import Address, Cell, StateBackend
from beam_spark_runner.state.shards import KEY_LIMIT


class SortedRecords:
    """Records in memory. They count what is asked of them."""

    def __init__(self) -> None:
        self.puts: list[int] = []  # bytes
        self.scanned = self.gotten = 0
        self.values: dict[bytes, bytes] = {}
        self._order: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        self.gotten += 1
        return self.values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        assert 0 < len(key) <= KEY_LIMIT
        self.puts.append(len(value))
        if key not in self.values:
            bisect.insort(self._order, key)
        self.values[key] = value

    def delete(self, key: bytes) -> bool:
        if key not in self.values:
            return False
        del self.values[key]
        self._order.remove(key)
        return True

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        place = bisect.bisect_left(self._order, max(prefix, start))
        while place < len(self._order) and (key := self._order[place]).startswith(prefix):
            self.scanned += 1
            yield key, self.values[key]
            place = bisect.bisect_right(self._order, key)

    def delete_prefix(self, prefix: bytes) -> None:
        for key, _ in list(self.scan(prefix)):
            self.delete(key)


def count_values(cell: Cell, data: bytes) -> int:
    return len(data)


def pages(backend: StateBackend, address: Address, token: bytes = b"") -> Iterator[bytes]:
    page = backend.get(address, token)
    yield page.data
    while page.token:
        page = backend.get(address, page.token)
        yield page.data


def read(backend: StateBackend, address: Address) -> bytes:
    return b"".join(pages(backend, address))


def list_entry(sort_key: int, data: bytes) -> bytes:
    number, coded = sort_key % (1 << 64), bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    return bytes([*coded, number, len(data)]) + data

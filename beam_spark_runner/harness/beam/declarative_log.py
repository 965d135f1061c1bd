"""Elements of keys that have very many in flight, in a file."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from apache_beam.coders import WindowedValueCoder

from beam_spark_runner.harness.beam.declarative_items import Advance, Begun, Element
from beam_spark_runner.state.spill import SpillFile

_TOGETHER = 64  # elements that are written, and read back, at a time


class _Written(NamedTuple):
    start: int
    length: int
    sizes: list[int]  # of the elements, in memory


@dataclass(slots=True)
class _OfKey:
    written: deque[_Written | tuple[Advance | Begun, int]]
    last: list[tuple[Element, int]]  # behind these


class ElementLog:
    """See ``semantics.in_flight.Log``.

    Args:
        coder: Encodes the elements of the step's input.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._coder = coder.get_impl()
        self._keys: dict[bytes, _OfKey] = {}
        self._file = SpillFile()

    def append(self, key: bytes, item: Element | Begun | Advance, size: int) -> None:
        """See ``Log``."""
        of_key = self._keys.setdefault(key, _OfKey(deque(), []))
        if not isinstance(item, Element):
            self._write(of_key)
            of_key.written.append((item, size))
            return
        of_key.last.append((item, size))
        if len(of_key.last) == _TOGETHER:
            self._write(of_key)

    def take(self, key: bytes) -> Iterable[tuple[Element | Begun | Advance, int]]:
        """See ``Log``."""
        of_key = self._keys[key]
        if not of_key.written:
            del self._keys[key]
            self._close_if_empty()
            return of_key.last
        first = of_key.written.popleft()
        items: list[tuple[Element | Begun | Advance, int]]
        if not isinstance(first, _Written):
            items = [first]
        else:
            origins = self._coder.decode_all(self._file.read(first.start, first.length))
            elements = (Element(origin.value, origin) for origin in origins)
            items = [*zip(elements, first.sizes, strict=True)]
        if not (of_key.written or of_key.last):
            del self._keys[key]
            self._close_if_empty()
        return items

    def _write(self, of_key: _OfKey) -> None:
        if of_key.last:
            coded = b"".join(
                self._coder.encode_nested(item.origin.with_value(item.value))
                for item, _ in of_key.last
            )
            sizes = [size for _, size in of_key.last]
            of_key.written.append(_Written(self._file.append(coded), len(coded), sizes))
            of_key.last = []

    def _close_if_empty(self) -> None:
        if not self._keys:
            self._file.close()

"""Sorts elements, each with its timestamp, windows and pane.

Pickled by value, see ``functions``.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.transforms.full_window.coding import ElementCodec
from beam_spark_runner.transforms.full_window.runs import RecordBlock
from beam_spark_runner.transforms.full_window.sorting import ExternalSorter

_MAX_ORIGINS = 1_000  # in the table; their numbers must fit into the int16 of a record
_MAX_ORIGINS_OF_CHUNK = 16  # a chunk with more origins has hardly any elements that share one


class ElementSorter:
    """An ``ExternalSorter`` of elements.

    Often many elements share an origin (timestamp, windows and pane), for example that of an
    element of a source. Shared origins are stored once, in a table; others are encoded with their
    element.

    Args:
        codec: Encodes and decodes the elements.
        key: Returns the key of a value.
        descends: Whether the largest key comes first.
        memory_bytes: See ``ExternalSorter``.
    """

    def __init__(
        self,
        codec: ElementCodec,
        key: Callable[[Any], Any],
        *,
        descends: bool,
        memory_bytes: int,
    ) -> None:
        self._codec = codec
        self._key = key
        self._sorter = ExternalSorter(
            self._decode, key, descends=descends, memory_bytes=memory_bytes
        )
        self._numbers: dict[bytes, int] = {}  # encoded origin -> its number, from 1
        self._origins: list[WindowedValue] = []

    def add(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Add elements; one with several windows becomes several elements."""
        if numbers := self._numbers_of(origins):
            coded = [*map(self._codec.encode_value, values)]
            self._sorter.add([*map(self._key, values)], RecordBlock(coded, numbers))
            return
        for value, origin in zip(values, origins, strict=True):
            coded = self._codec.encode(value, origin)
            self._sorter.add([self._key(value)] * len(coded), RecordBlock(coded, [0] * len(coded)))

    def add_coded(self, coded: list[bytes]) -> None:
        """Add elements that are encoded with their timestamp, window and pane."""
        block = RecordBlock(coded, [0] * len(coded))
        values, _ = self._decode(block)
        self._sorter.add([*map(self._key, values)], block)

    def sorted(self) -> Iterator[tuple[list[Any], list[WindowedValue]]]:
        """See ``ExternalSorter.sorted``."""
        return self._sorter.sorted()

    def close(self) -> None:
        """See ``ExternalSorter.close``."""
        self._sorter.close()

    def _numbers_of(self, origins: list[WindowedValue]) -> list[int]:
        """Return the number of each origin in the table; empty: not all can be in the table."""
        places: dict[int, int] = {}
        for origin in distinct(origins):
            if len(places) == _MAX_ORIGINS_OF_CHUNK or len(origin.windows) != 1:
                return []
            coded = self._codec.encode_origin(origin)
            if coded not in self._numbers:
                if len(self._origins) == _MAX_ORIGINS:
                    return []
                self._origins.append(self._codec.decode_origin(coded))
                self._numbers[coded] = len(self._origins)
            places[id(origin)] = self._numbers[coded]
        if len(places) == 1:
            return [*places.values()] * len(origins)
        return [places[id(origin)] for origin in origins]

    def _decode(self, block: RecordBlock) -> tuple[list[Any], list[WindowedValue]]:
        """Return values, and for each a windowed value with its timestamp, windows and pane."""
        coded, numbers = block
        origin_numbers = set(numbers)
        if 0 not in origin_numbers:
            values = [*map(self._codec.decode_value, coded)]
            if len(origin_numbers) == 1:
                return values, [self._origins[numbers[0] - 1]] * len(values)
            return values, [self._origins[number - 1] for number in numbers]
        elements = [
            self._origins[number - 1].with_value(self._codec.decode_value(record))
            if number
            else self._codec.decode(record)
            for record, number in zip(coded, numbers, strict=True)
        ]
        return [element.value for element in elements], elements


def distinct(origins: list[WindowedValue]) -> Iterable[WindowedValue]:
    """Return each object of a list once: the origins of a chunk are often the same object."""
    first = origins[0]
    if all(map(operator.is_, origins, itertools.repeat(first))):
        return (first,)
    return {id(origin): origin for origin in origins}.values()

"""Chunks of elements: how many are pushed into a bundle at a time, and what they share."""

import itertools
import operator
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.bundle import BundleInput

_CHUNK_VALUES = 128
_CHUNK_BYTES = 1 << 20


class Chunks:
    """Collects elements and pushes them into the bundle in chunks of at most a megabyte."""

    def __init__(self, bundle: BundleInput) -> None:
        self._bundle = bundle
        self._values: list[Any] = []
        self._origins: list[WindowedValue] = []
        self._room = _CHUNK_BYTES

    def add(self, value: Any, origin: WindowedValue, size: int) -> None:
        """Take one element, whose encoding has ``size`` bytes."""
        self._values.append(value)
        self._origins.append(origin)
        self._room -= size
        if self._room < 0 or len(self._values) >= _CHUNK_VALUES:
            self.push()

    def push(self) -> None:
        """Push the elements that were collected."""
        if self._values:
            values, origins = self._values, self._origins
            self._values, self._origins, self._room = [], [], _CHUNK_BYTES
            self._bundle.push(values, origins)


def per_chunk(coded: list[bytes]) -> int:
    """Return the number of values per chunk, from the average size of these encoded ones."""
    return max(1, min(_CHUNK_VALUES, _CHUNK_BYTES * len(coded) // (1 + sum(map(len, coded)))))


def have_one_origin(origins: list[WindowedValue]) -> bool:
    """Return whether all elements of a chunk have the same origin object; there is at least one."""
    return all(map(operator.is_, origins, itertools.repeat(origins[0])))

"""Objects whose size in memory cannot be told from their bytes.

How much is in memory at once is bounded by bytes: of rows, of groups, of what is read ahead.
A class that says itself how it is pickled may hold far more than its pickles do, so few of its
objects are made before the user's function is done with the ones before, as in Beam's harness.
Groups of objects that turn out to be small are lists, like all others.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import apache_beam as beam
from apache_beam.coders.coder_impl import FastPrimitivesCoderImpl
from apache_beam.runners.worker.statecache import get_deep_size

from beam_spark_runner.core.mapping import map_all
from beam_spark_runner.harness.spill import MEMORY_LIMIT_BYTES


def is_opaque(value: Any) -> bool:
    """Whether a value, or one in a tuple, is made anew from whatever its ``__reduce__`` returns."""
    return _opaque_class(value) is not None


def _opaque_class(value: Any) -> type | None:
    parts = value if isinstance(value, tuple) else (value,)
    for part in parts:
        if isinstance(part, beam.Row):  # which a coder of its own codes by its fields
            continue
        for name in ("__reduce__", "__reduce_ex__"):
            if isinstance(getattr(type(part), name), FunctionType):
                return type(part)
    return None


_MOST = 4  # in memory at once, while nothing is known of their size
_VALUES_PER_CHUNK = 128  # of several groups, perhaps, that are in memory together
_MEASURE_EVERY = 512  # values: a measurement takes a millisecond


class _Scale:
    """How much memory a value with objects of one class takes; measured from time to time."""

    def __init__(self) -> None:
        self._value_bytes = 0
        self._until_next = 0

    def size_of_value(self, coded: list[bytes], decode: Callable[[bytes], Any]) -> int:
        """Return the largest mean of some values that was measured, of this group or before."""
        if self._until_next <= 0:
            self._until_next = _MEASURE_EVERY
            some = [decode(each) for each in coded[:_MOST]]
            self._value_bytes = max(self._value_bytes, get_deep_size(*some) // len(some))
        self._until_next -= len(coded)
        return self._value_bytes


_scales: weakref.WeakKeyDictionary[type, _Scale] = weakref.WeakKeyDictionary()


def decoded(coded: list[bytes], decode: Callable[[bytes], Any]) -> Sequence[Any]:
    """Decode the values of a group; if memory has no room for them, each when it is asked for."""
    if len(coded) > _MOST:
        opaque_class = _opaque_class(decode(coded[0]))
        if opaque_class is not None:
            scale = _scales.setdefault(opaque_class, _Scale())
            size = scale.size_of_value(coded, decode)
            if size * max(len(coded), _VALUES_PER_CHUNK) > MEMORY_LIMIT_BYTES:
                return OpaqueValues(coded, decode)
    return map_all(decode, coded)


class OpaqueValues(Sequence[Any]):
    """Values of one group, each decoded when it is asked for, and again the next time.

    So two iterations give different objects, as of a group that is too large for memory by its
    bytes alone (``StreamedValues``), and as Beam's SDKs do it for groups that they read from the
    runner's state. Beam promises no more: elements must not be changed, and coders must be
    deterministic where it matters. A smaller group is a list, whose objects stay the same.
    """

    def __init__(self, coded: Sequence[bytes], decode: Callable[[bytes], Any]) -> None:
        self._coded = coded
        self._decode = decode

    def __len__(self) -> int:
        return len(self._coded)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return OpaqueValues(self._coded[index], self._decode)
        return self._decode(self._coded[index])

    def __iter__(self) -> Iterator[Any]:
        decode = self._decode
        for coded in self._coded:
            yield decode(coded)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


# Lets Beam's default coder encode the group as a list where it leaves the stage.
FastPrimitivesCoderImpl.register_iterable_like_type(OpaqueValues)

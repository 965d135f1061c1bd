"""Finds objects whose size in memory cannot be estimated from their encoded size.

How much is in memory at once is bounded by bytes: of rows, of groups, of what is read ahead.
A class that says itself how it is pickled may hold far more than its pickles do, so few of its
objects are made before the user's function is done with the ones before, as in Beam's harness.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import apache_beam as beam
from apache_beam.coders.coder_impl import FastPrimitivesCoderImpl

from beam_spark_runner.core.mapping import map_all


def is_opaque(value: Any) -> bool:
    """Whether a value, or one in a tuple, is made anew from whatever its ``__reduce__`` returns."""
    if isinstance(value, tuple):
        return any(map(_is_opaque_type, map(type, value)))
    return _is_opaque_type(type(value))  # type: ignore[arg-type]  # types are hashable


@functools.lru_cache(maxsize=1024)
def _is_opaque_type(kind: type) -> bool:
    if issubclass(kind, beam.Row):  # which a coder of its own codes by its fields
        return False
    return any(
        isinstance(getattr(kind, name), FunctionType) for name in ("__reduce__", "__reduce_ex__")
    )


_MOST = 4  # in memory at once


def decoded(coded: list[bytes], decode: Callable[[bytes], Any]) -> Sequence[Any]:
    """Decode the values of a group, or have each decoded when it is asked for."""
    if len(coded) > _MOST and is_opaque(decode(coded[0])):
        return OpaqueValues(coded, decode)
    return map_all(decode, coded)


class OpaqueValues(Sequence[Any]):
    """Values of one group, each decoded when it is asked for, and again the next time.

    So two iterations give different objects, as of a group that is too large for memory by its
    bytes alone (``StreamedValues``), and as Beam's SDKs do it for groups that they read from the
    runner's state. Beam promises no more: elements must not be changed, and coders must be
    deterministic where it matters.
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

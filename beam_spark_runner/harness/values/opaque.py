"""Finds objects whose size in memory cannot be estimated from their encoded size.

The runner bounds memory by encoded bytes: of rows, of groups, of elements that are read ahead.
An object of a class with its own ``__reduce__`` may be far larger than its pickle. So only
few such objects are decoded before user code has processed them, as in Beam's harness.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import apache_beam as beam
from apache_beam.coders.coder_impl import FastPrimitivesCoderImpl
from typing_extensions import override

from beam_spark_runner.core.user_calls import map_all


def is_opaque(value: Any) -> bool:
    """Whether the class of a value, or of one in a tuple, defines ``__reduce__`` in Python."""
    if isinstance(value, tuple):
        return any(map(_is_opaque_type, map(type, value)))
    return _is_opaque_type(type(value))  # type: ignore[arg-type]  # types are hashable


@functools.lru_cache(maxsize=1024)
def _is_opaque_type(kind: type) -> bool:
    if issubclass(kind, beam.Row):  # encoded by its fields, not pickled
        return False
    return any(
        isinstance(getattr(kind, name), FunctionType) for name in ("__reduce__", "__reduce_ex__")
    )


_MAX_IN_MEMORY = 4


def decoded(coded: list[bytes], decode: Callable[[bytes], Any]) -> Sequence[Any]:
    """Decode the values of a group; each value on access if they are opaque."""
    if len(coded) > _MAX_IN_MEMORY and is_opaque(decode(coded[0])):
        return OpaqueValues(coded, decode)
    return map_all(decode, coded)


class OpaqueValues(Sequence[Any]):
    """Values of one group, each decoded on every access.

    Two iterations yield different objects, as they do for large groups (``StreamedValues``), and
    in Beam's SDKs for groups that are read from the runner's state. Beam guarantees no more:
    elements must not be mutated, and coders must be deterministic where it matters.
    """

    def __init__(self, coded: Sequence[bytes], decode: Callable[[bytes], Any]) -> None:
        self._coded = coded
        self._decode = decode

    @override
    def __len__(self) -> int:
        return len(self._coded)

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return OpaqueValues(self._coded[index], self._decode)
        return self._decode(self._coded[index])

    @override
    def __iter__(self) -> Iterator[Any]:
        decode = self._decode
        for coded in self._coded:
            yield decode(coded)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


# Has Beam's default coder encode the group as a list when it leaves the stage.
FastPrimitivesCoderImpl.register_iterable_like_type(OpaqueValues)

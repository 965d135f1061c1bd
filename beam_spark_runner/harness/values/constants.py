"""Decides by their types which values are immutable.

A step that processes a chunk of elements produces several results before the first of them
is processed further. Until then, user code that has a reference may change a result: by
``yield self.batch; self.batch.clear()``, by returning one buffer from every call, or by closing
a file that it has yielded. So only constants are collected in chunks.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
from apache_beam.transforms import core
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Duration, Timestamp

ATOMS: frozenset[type] = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, range),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, uuid.UUID),
        *(Timestamp, Duration, GlobalWindow, IntervalWindow),
        *(np.bool_, np.str_, np.bytes_, np.datetime64, np.timedelta64),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    }
)
"""Exact types whose instances are immutable, and refer to immutable values only."""


class Kind(enum.Enum):
    """How values of a chunk can be changed by user code.

    None of them can be changed before the next step has run, whatever the kind.
    """

    OWN = enum.auto()
    """Only the next step has references to their mutable parts, as with decoded values."""
    NEW = enum.auto()
    """As ``OWN``, and all their parts are of builtin types."""
    CONSTANT = enum.auto()
    """They and all their parts are immutable."""
    PLAIN = enum.auto()
    """Instances of ``ATOMS``, and tuples of these."""


def may_be_shared(values: list[Any], kind: Kind) -> bool:
    """Return whether a chunk of values may be passed to several steps, one after another.

    One step may change a value that it keeps when it gets the next one, and the steps after it
    must not see that. So the values must be constants.
    """
    return (
        kind in (Kind.CONSTANT, Kind.PLAIN)
        or ATOMS.issuperset(map(type, values))
        or all(map(is_constant, values))
    )


def is_plain(value: Any, depth: int = 8) -> bool:
    """Return whether a value is of ``Kind.PLAIN``, as far as ``depth`` levels of tuples show."""
    if type(value) in ATOMS:
        return True
    if type(value) is not tuple:
        return False
    for part in value:
        if type(part) not in ATOMS and not (depth and is_plain(part, depth - 1)):
            return False
    return True


def is_plain_data(side_input: Any) -> bool:
    """Return whether a side input is plain, or a list or dict of plain values."""
    kind = type(side_input)
    if kind is dict:
        return _all_plain(side_input) and _all_plain(side_input.values())
    return _all_plain(side_input) if kind is list else is_plain(side_input)


def _all_plain(values: Collection[Any]) -> bool:
    return ATOMS.issuperset(map(type, values)) or all(map(is_plain, values))


def is_constant(value: Any, depth: int = 8) -> bool:
    """Return whether the value and everything that it refers to are immutable.

    Tuples, named tuples, frozen sets and frozen dataclasses are constants if all their parts are;
    types and members of enums always are. Any other type that is not in ``ATOMS`` is mutable.

    Args:
        value: Any object.
        depth: The levels of nesting that are examined; deeper values count as mutable.
    """
    kind = type(value)
    if kind in ATOMS:
        return True
    parts: Iterable[Any] = value
    if kind is not tuple:
        parts_of = _parts_of_instances(kind)  # type: ignore[arg-type]
        if parts_of is None:
            return False
        parts = parts_of(value)
    for part in parts:
        if type(part) not in ATOMS and not (depth and is_constant(part, depth - 1)):
            return False
    return True


@functools.lru_cache(maxsize=1024)
def may_change(kind: type) -> bool:
    """Whether no instance of a type is known to be immutable. Values may be in other objects."""
    return kind not in ATOMS and kind is not tuple and _parts_of_instances(kind) is None


@functools.lru_cache(maxsize=1024)
def _parts_of_instances(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    """Return a function from an instance to its parts; None: instances may be mutable."""
    if kind is frozenset:
        return iter
    if kind is type or issubclass(kind, enum.Enum):
        return _no_parts
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__:
        return iter
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen and kind.__mro__[1:] == (object,):
        if kind.__dictoffset__:
            return _attributes
        names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        return lambda value: [getattr(value, name) for name in names]
    return None


def makes_new_lists(combine_fn: core.CombineFn) -> bool:
    """Whether merged and compacted accumulators are new lists without other references.

    This holds for Beam's CombineFns that wrap a function, as in ``CombinePerKey(sum)``. The
    elements of such a list may be anything that the function returns.
    """
    return type(combine_fn) in _OF_FUNCTIONS


_OF_FUNCTIONS = (core.CallableWrapperCombineFn, core.NoSideInputsCallableWrapperCombineFn)


def _no_parts(_: Any) -> Iterable[Any]:
    return ()


def _attributes(value: Any) -> Iterable[Any]:
    attributes: Iterable[Any] = vars(value).values()
    return attributes

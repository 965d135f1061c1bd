"""Decides by their types which values cannot change.

A step that processes many elements at a time produces several results before the first of them
is processed further. Until then, user code that holds a reference may change a result: by
``yield self.batch; self.batch.clear()``, by returning one buffer from every call, or by closing
a file that it has yielded. So only constants wait for each other.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import uuid
from collections.abc import Callable, Iterable
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
"""Exact types whose instances cannot change, and refer to nothing that can."""


class Kind(enum.Enum):
    """What is known of values that go together from one step to the next.

    User code can change none of them before the next step has run, whatever the kind.
    """

    OWN = enum.auto()
    """Nobody but the next step refers to what can change in them, as with decoded values."""
    NEW = enum.auto()
    """As ``OWN``, and all parts of them are of builtin types."""
    CONSTANT = enum.auto()
    """Nothing in them can change."""
    PLAIN = enum.auto()
    """Instances of ``ATOMS``, and tuples of these."""


def may_be_shared(values: list[Any], kind: Kind) -> bool:
    """Return whether several steps may get the values, all at once one after the other.

    A step may keep a value and change it when it gets the next one. The others must not see that.
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


def is_constant(value: Any, depth: int = 8) -> bool:
    """Return whether nothing can change the value, nor anything that it refers to.

    Tuples, named tuples, frozen sets, frozen dataclasses and members of enums are constants
    where all that they hold is. Any other type that is not in ``ATOMS`` counts as changeable.

    Args:
        value: any object.
        depth: of nesting that is looked at; what is deeper counts as changeable.
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
def _parts_of_instances(kind: type) -> Callable[[Any], Iterable[Any]] | None:
    """Return what gives all that an instance holds; None: instances may change."""
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
    """Whether merged and compacted accumulators are new lists, which nobody else has.

    So they are with Beam's own CombineFns of a function, as ``CombinePerKey(sum)`` has one. What
    is in such a list may be anything that the function returns.
    """
    return type(combine_fn) in _OF_FUNCTIONS


_OF_FUNCTIONS = (core.CallableWrapperCombineFn, core.NoSideInputsCallableWrapperCombineFn)


def _no_parts(_: Any) -> Iterable[Any]:
    return ()


def _attributes(value: Any) -> Iterable[Any]:
    attributes: Iterable[Any] = vars(value).values()
    return attributes

"""Finds generators that may hold something open, and keeps their results from waiting downstream.

``with open(path) as file: yield path`` expects that later steps have used the path when
it continues.
"""

import contextlib
import dis
import inspect
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, GeneratorType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import core

_WITH = frozenset(["SETUP_WITH", "BEFORE_WITH", "LOAD_SPECIAL"])
"""Opcodes of Python 3.10, of 3.11 to 3.13, and of later versions."""
_YIELD_FROM = frozenset(["GET_YIELD_FROM_ITER"])


def has_with(code: CodeType) -> bool:
    """Whether a function has a ``with`` statement."""
    return _has(code, _WITH)


def has_yield_from(code: CodeType) -> bool:
    """Whether a generator yields what another one yields, which may have a ``with`` statement."""
    return _has(code, _YIELD_FROM)


def yields_from_with(generator: Any) -> bool:
    """Whether the generator that has made the last result for this one has a ``with`` statement."""
    inner = generator.gi_yieldfrom
    while type(inner) is GeneratorType:
        if has_with(inner.gi_code):
            return True
        inner = inner.gi_yieldfrom
    return False


def may_hold_open(fn: core.DoFn) -> bool:
    """Whether a generator of a DoFn, or of a function that it wraps, may hold something open."""
    own = (kind for kind in type(fn).__mro__ if kind not in core.DoFn.__mro__)
    candidates: list[Any] = [value for kind in own for value in vars(kind).values()]
    candidates += vars(fn).values()
    codes: set[CodeType] = set()
    while candidates:
        function = candidates.pop()
        if not isinstance(function, FunctionType) or function.__code__ in codes:
            continue
        code = function.__code__
        codes.add(code)
        if code.co_flags & inspect.CO_GENERATOR and _has(code, _WITH | _YIELD_FROM):
            return True
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable without a value
                candidates.append(cell.cell_contents)
    return False


class Waits(Protocol):
    """An operation in front of which constants wait until there are enough for a chunk."""

    may_wait: bool


_waits_by_factory: WeakKeyDictionary[Any, dict[str, Waits]] = WeakKeyDictionary()


def constants_wait_for(factory: Any, transform_id: str, operation: Waits) -> None:
    """Remember an operation, until the factory has made the operations upstream of it."""
    _waits_by_factory.setdefault(factory, {})[transform_id] = operation


def let_pass(factory: Any, transform: beam_runner_api_pb2.PTransform, fn: core.DoFn) -> None:
    """If a step may hold something open, let no element wait in front of those downstream of it.

    Args:
        factory: Beam's, which has already made the operations downstream.
        transform: The step.
        fn: Its DoFn.
    """
    waits = _waits_by_factory.get(factory)
    if not waits or not may_hold_open(fn):
        return
    for transform_id in _downstream(factory.descriptor.transforms, transform):
        if transform_id in waits:
            waits[transform_id].may_wait = False


def _downstream(transforms: Any, transform: beam_runner_api_pb2.PTransform) -> Iterator[str]:
    """Return the ids of the steps downstream of one, each once."""
    readers: dict[str, list[str]] = {}
    for id_, step in transforms.items():
        for collection in step.inputs.values():
            readers.setdefault(collection, []).append(id_)
    ids: set[str] = set()
    collections: list[str] = [*transform.outputs.values()]
    while collections:
        for id_ in readers.get(collections.pop(), ()):
            if id_ not in ids:
                ids.add(id_)
                yield id_
                collections += transforms[id_].outputs.values()


def _has(code: CodeType, opcodes: Iterable[str]) -> bool:
    return any(instruction.opname in opcodes for instruction in dis.get_instructions(code))

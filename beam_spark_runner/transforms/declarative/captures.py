"""Whether a declared callback does the same in another process: what it uses is examined.

A callback is continued there by its name. So it must not use anything that belongs to this process
or to a record: its closure, the defaults of its arguments, global variables, the attributes of its
``KeyedProcess`` that its code reads, and the functions and declared callbacks that it uses must be
the same in each process; declared callbacks are examined for themselves. Safe are:

- values that cannot be changed: numbers, texts, bytes, times, members of enums, and tuples and
  frozensets of them,
- states, timers, variables, the context, and a ``Shared``,
- modules, classes, coders, loggers, metrics, and functions of Python and Beam; containers that
  are attributes of modules, classes and functions are no part of these,
- other functions, if what they use is safe.

Variables that have such values must also keep them. A function that changes them is found when it
is one of those that are examined; else ``Examined.judged_now`` finds that they have changed.

For harnesses that have this package; the classes of steps may be copies that were pickled by value.

Usage::

    examined = examine(named.fn)        # before any record is processed
    judgement = examined.judged_now()   # at each snapshot
    if not judgement.is_safe: print(judgement.capture, judgement.why)
    examined.callbacks                  # must be safe, too
"""

import builtins
import collections
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import logging
import operator
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.coders import Coder
from apache_beam.metrics.metricbase import Metric
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner.transforms.declarative.code_uses import CodeUses, uses_of

_SCALARS = {
    *(bool, bytes, complex, float, int, str, type(None), type(Ellipsis), type(NotImplemented)),
    *(decimal.Decimal, fractions.Fraction, range, re.Pattern, uuid.UUID, Duration, Timestamp),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
}
_SAFE = (
    *(type, types.ModuleType, types.GenericAlias, types.UnionType, enum.Enum),
    *(Coder, Metric, logging.Logger),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
)
_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_BUILTIN_METHODS = (types.BuiltinFunctionType, types.MethodWrapperType)
# They reach variables that the code does not name.
_REFUSED_BUILTINS = {"eval", "exec", "globals", "locals"}
_TRUSTED = {*sys.stdlib_module_names, "apache_beam"} - {"__main__"}
_PACKAGE = __name__.rpartition(".")[0]
_UNBOUND = object()
_HAS_NO_VALUE = "it has no value when the callbacks are declared"


class Judgement(NamedTuple):
    """Whether a callback may be continued in another process.

    Attributes:
        capture: What it uses that is not safe, as in the code; empty: there is nothing.
        why: Why that is not safe.
    """

    capture: str = ""
    why: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether the callback may be continued in another process."""
        return not self.capture


class _Source(NamedTuple):
    """A variable with the value that it had when it was examined."""

    name: str
    read: Callable[[], Any]
    value: Any


class Examined:
    """What was found by ``examine``.

    Args:
        declared: The judgement when the callbacks were declared.
        sources: The variables that must keep their values.
        callbacks: See below.

    Attributes:
        callbacks: The declared callbacks that it uses, by name. They are not examined.
    """

    def __init__(
        self, declared: Judgement, sources: Sequence[_Source], callbacks: Mapping[str, Any]
    ) -> None:
        self._declared, self._sources, self.callbacks = declared, sources, callbacks

    def judged_now(self) -> Judgement:
        """Return the judgement, which also depends on whether variables have kept their values."""
        for name, read, value in self._sources:
            found = read()
            if not _are_same(found, value):
                return Judgement(name, "it has changed since the callbacks were declared")
        return self._declared


def examine(callback: Callable[..., Any]) -> Examined:
    """Examine what a function uses, before any record is processed.

    Args:
        callback: The function of a declared callback.
    """
    examination = _Examination()
    try:
        examination.value(callback, getattr(callback, "__qualname__", "it"))
    except _UnsafeError as found:
        return Examined(found.judgement, (), {})
    return Examined(Judgement(), examination.sources, examination.callbacks)


class _UnsafeError(Exception):
    def __init__(self, capture: str, why: str) -> None:
        super().__init__(capture, why)
        self.judgement = Judgement(capture, why)


class _Examination:
    """Looks at everything that can be reached, and at each function once.

    Attributes:
        sources: The variables that were found.
        callbacks: The declared callbacks that were found, by name.
    """

    def __init__(self) -> None:
        self.callbacks: dict[str, Any] = {}
        self.sources: list[_Source] = []
        self._seen: dict[tuple[int, int], Any] = {}  # keeps what it has, so that ids stay theirs

    def value(self, value: Any, name: str) -> None:
        """Examine a value.

        Args:
            value: The value.
            name: What has it, as in the code.

        Raises:
            _UnsafeError: It is not safe.
        """
        kind = type(value)
        if kind in _SCALARS or isinstance(value, _SAFE) or _is_of_step(kind):
            return
        if kind.__module__ == "typing":
            return
        if getattr(kind, "is_named_callback", False):
            self.callbacks[value.name] = value
        elif isinstance(value, tuple | frozenset):
            if not self._has_seen(value, None):
                for each in value:
                    self.value(each, name)
        elif isinstance(value, types.FunctionType):
            self._function(value, name, None)
        elif isinstance(value, types.MethodType):
            self._method(value, name)
        elif isinstance(value, _BUILTIN_METHODS):
            owner = getattr(value, "__self__", None)
            if not isinstance(owner, types.ModuleType):
                self.value(owner, name)
        elif kind is functools.partial:
            for each in (value.func, value.args, *value.keywords.values()):
                self.value(each, name)
        elif isinstance(value, _GETTERS):
            self.value(value.__reduce__()[1], name)
        elif _is_process(value):
            self._whole_process(value, name)
        else:
            raise _UnsafeError(name, f"a value of the type {kind.__name__} may be changed")

    def _method(self, method: types.MethodType, name: str) -> None:
        owner = method.__self__
        if _is_process(owner):
            self._function(method.__func__, name, owner)
        elif not _is_of_step(type(owner)):
            self.value(owner, name)
            self.value(method.__func__, name)

    def _function(self, fn: Any, name: str, process: Any) -> None:
        """Examine a function, whose first argument is a process, or None if it is not."""
        if self._has_seen(fn, process):
            return
        code = fn.__code__
        cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
        defaults = fn.__defaults__ or ()
        positional = code.co_varnames[: code.co_argcount]
        given = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
        for argument, default in {**given, **(fn.__kwdefaults__ or {})}.items():
            self.value(default, argument)
        known = {positional[0]: process} if process is not None and positional else {}
        if _is_trusted(fn):
            for variable, cell in cells.items():
                self._variable(variable, _reader_of_cell(cell), None)
        else:
            self._code(code, cells, fn.__globals__, known)

    def _code(
        self,
        code: types.CodeType,
        cells: Mapping[str, Any],
        namespace: dict[str, Any],
        known: Mapping[str, Any],
    ) -> None:
        """Examine code.

        Args:
            code: The code.
            cells: The variables of functions around it that have returned, by name.
            namespace: Its global variables.
            known: Its own variables that are processes, by name.
        """
        uses = uses_of(code)
        for name in uses.assigned:
            if name in cells or name not in code.co_freevars:
                raise _UnsafeError(name, "the callback sets this variable")
        for name, process in known.items():
            self._process(process, name, uses)
        for name in code.co_freevars:
            if name in cells:
                self._variable(name, _reader_of_cell(cells[name]), uses)
        for name in uses.global_names:
            self._global(name, namespace, uses)
        if "super" in uses.global_names and "__class__" in code.co_freevars:
            self._inherited(code, known)
        for inner in uses.inner:
            self._code(
                inner,
                {name: cells[name] for name in inner.co_freevars if name in cells},
                namespace,
                {name: known[name] for name in inner.co_freevars if name in known},
            )

    def _global(self, name: str, namespace: dict[str, Any], uses: CodeUses) -> None:
        if name not in namespace and hasattr(builtins, name):
            if name in _REFUSED_BUILTINS:
                raise _UnsafeError(name, "it may use any variable")
            return
        self._variable(name, lambda: namespace.get(name, _UNBOUND), uses)

    def _variable(self, name: str, read: Callable[[], Any], uses: CodeUses | None) -> None:
        """Examine a variable outside of the function that uses it; no uses: any."""
        value = read()
        if value is _UNBOUND:
            raise _UnsafeError(name, _HAS_NO_VALUE)
        self.sources.append(_Source(name, read, value))
        if _is_process(value) and uses is not None:
            self._process(value, name, uses)
            return
        if uses is not None and name in uses.changed:
            attribute = min(uses.changed[name])
            raise _UnsafeError(f"{name}.{attribute}", "the callback sets this attribute")
        self.value(value, name)
        if uses is not None and not _is_trusted(value):
            for attribute in sorted(uses.attributes.get(name, ())):
                found = _container_of(value, attribute)
                if found is not None:
                    self.value(found, f"{name}.{attribute}")

    def _process(self, process: Any, name: str, uses: CodeUses) -> None:
        """Examine what is used of a process."""
        for attribute in uses.changed.get(name, ()):
            raise _UnsafeError(f"{name}.{attribute}", "the callback sets this attribute")
        for attribute in sorted(uses.attributes.get(name, ())):
            self._attribute(process, attribute, name)
        if name in uses.passed:
            self._whole_process(process, name)

    def _attribute(self, process: Any, attribute: str, name: str) -> None:
        if attribute == "__class__":
            return
        name = f"{name}.{attribute}"
        if attribute == "__dict__":
            self._whole_process(process, name)
            return
        value = _attribute_of(process, attribute)
        if value is _UNBOUND:
            raise _UnsafeError(name, _HAS_NO_VALUE)
        self.sources.append(_Source(name, lambda: _attribute_of(process, attribute), value))
        if attribute not in vars(process):
            if isinstance(value, types.FunctionType):
                self._function(value, name, process)
                return
            if isinstance(value, property):
                self._function(value.fget, name, process)
                return
            if isinstance(value, classmethod | staticmethod):
                value = value.__func__
        self.value(value, name)

    def _inherited(self, code: types.CodeType, known: Mapping[str, Any]) -> None:
        """Examine the methods of base classes that code may call by ``super()``."""
        process = known.get(code.co_varnames[0]) if code.co_varnames else None
        for base in type(process).__mro__[1:] if process is not None else ():
            for name in {*code.co_names} & {*vars(base)}:
                method = vars(base)[name]
                if isinstance(method, types.FunctionType):
                    self._function(method, f"super().{name}", process)

    def _whole_process(self, process: Any, name: str) -> None:
        """Examine all that functions may use which get a process."""
        if not self._has_seen(process, None):
            for attribute in _all_attributes(process):
                self._attribute(process, attribute, name)

    def _has_seen(self, value: Any, process: Any) -> bool:
        key = id(value), id(process)
        has_seen = key in self._seen
        self._seen[key] = value, process
        return has_seen


def _is_of_step(kind: type) -> bool:
    """Whether a class is that of a state, timer, variable, context or shared attribute."""
    return (
        getattr(kind, "is_declared_attribute", False) is True
        or getattr(kind, "is_of_record", False) is True
        or getattr(kind, "is_shared_value", False) is True
    )


def _is_process(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "declare_all") and hasattr(kind, "declared_attributes")


def _is_trusted(value: Any) -> bool:
    """Whether a value is of Python, Beam or this package: what it uses is safe."""
    is_module = isinstance(value, types.ModuleType)
    module = (value.__name__ if is_module else getattr(value, "__module__", "")) or ""
    is_ours = module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
    return is_ours or module.partition(".")[0] in _TRUSTED


def _container_of(owner: Any, attribute: str) -> Any:
    """Return a container that a module, class or function has as an attribute, else None."""
    if not isinstance(owner, type | types.ModuleType | types.FunctionType):
        return None
    found = inspect.getattr_static(owner, attribute, None)
    return found if isinstance(found, _CONTAINERS) else None


def _reader_of_cell(cell: Any) -> Callable[[], Any]:
    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # it is empty
            return _UNBOUND

    return read


def _attribute_of(process: Any, name: str) -> Any:
    return inspect.getattr_static(process, name, _UNBOUND)


def _all_attributes(process: Any) -> Iterator[str]:
    """Yield the attributes of a process that its user has defined, other than those for Beam."""
    yield from (name for name in vars(process) if not name.startswith("_beam_spark_runner_"))
    for kind in type(process).__mro__:
        if "declare_all" in vars(kind):
            return
        for name in vars(kind):
            is_special = name.startswith(("__", "declare_"))
            if not is_special and name not in ("process", "setup", "teardown"):
                yield name


def _are_same(found: Any, value: Any) -> bool:
    """Whether two values, the second of which is safe, are equal and of the same types."""
    if found is value:
        return True
    if type(found) is not type(value):
        return False
    if isinstance(value, tuple):
        return len(found) == len(value) and all(map(_are_same, found, value))
    return type(value) in _SCALARS and found == value and repr(found) == repr(value)

"""Finds functions whose code cannot keep a reference to their results.

A function is closed if it reads only its arguments and constants, and calls only builtin
functions, methods of builtin types and other closed functions. It cannot keep a reference to its
result. From arguments of builtin types it makes results of builtin types, which only their
receiver can change. So results may be collected in a chunk without inspecting them.

Methods are identified by name alone. That suffices if all arguments are of builtin types, which
the caller ensures.
"""

import builtins
import dis
import inspect
import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.harness.values.constants import is_plain

_TYPES = (
    *(bool, int, float, complex, str, bytes, bytearray),
    *(tuple, list, dict, set, frozenset, range, slice),
)
_METHODS = {name for kind in _TYPES for name in dir(kind) if not name.startswith("_")}
_KNOWN = (
    *_TYPES,
    *(abs, all, any, ascii, bin, chr, divmod, enumerate, filter, format, hash, hex, isinstance),
    *(iter, len, map, max, min, next, oct, ord, pow, repr, reversed, round, sorted, sum, zip),
    *(ArithmeticError, AttributeError, Exception, IndexError, KeyError, LookupError),
    *(OverflowError, TypeError, ValueError, ZeroDivisionError),
    *(TimestampedValue, json.loads, re.findall, re.split, re.sub),
    *(value for name, value in vars(math).items() if not name.startswith("_")),
)
_LAZY = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_READS_NAME = ("LOAD_GLOBAL", "LOAD_NAME")
_READS_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_BINDS_CELL = ("STORE_DEREF", "DELETE_DEREF")


class Closed:
    """A function that is closed as long as the variables that it reads are not bound again.

    Attributes:
        may_stamp: Whether results may be ``TimestampedValue``s.
    """

    def __init__(self) -> None:
        self.may_stamp = False
        self._reads: dict[tuple[int, str], tuple[Mapping[str, Any], Any]] = {}
        self._cells: list[tuple[CellType, Any]] = []
        self._functions: set[FunctionType] = set()  # that have been examined

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Closed | None":
        """Return an object for a function that is closed now; None: it is not closed.

        Args:
            function: A callable whose arguments will be of builtin types.
        """
        closed = cls()
        try:
            return closed if closed._follows(function) else None
        except RecursionError:  # it is composed of too many functions
            return None

    def holds(self) -> bool:
        """Return whether the function is still closed: a program may have bound variables again."""
        return all(
            variables.get(name, _NOTHING) is value
            for (_, name), (variables, value) in self._reads.items()
        ) and all(_content_of(cell) is value for cell, value in self._cells)

    def _follows(self, function: Any) -> bool:
        """Whether a function is closed. Records the variables that it reads."""
        if isinstance(function, MethodDescriptorType):
            return function.__objclass__ in _TYPES
        if type(function) is operator.itemgetter or _is_known(function):
            self.may_stamp |= function is TimestampedValue
            return True
        if type(function) is not FunctionType:
            return False
        if function in self._functions:  # it calls itself
            return True
        self._functions.add(function)
        code = function.__code__
        return (
            not code.co_flags & _LAZY
            and all(map(is_plain, function.__defaults__ or ()))
            and all(map(is_plain, (function.__kwdefaults__ or {}).values()))
            and all(map(self._follows_cell, function.__closure__ or ()))
            and self._follows_code(code, function.__globals__, set(code.co_freevars))
        )

    def _follows_cell(self, cell: CellType) -> bool:
        value = _content_of(cell)
        self._cells.append((cell, value))
        return is_plain(value) or self._follows(value)

    def _follows_code(self, code: CodeType, variables: Mapping[str, Any], outer: set[str]) -> bool:
        """Whether the code of a function, and of functions within it, is closed.

        Args:
            code: The code of the function.
            variables: Its global variables.
            outer: The names of variables of enclosing functions, which the code may read.
        """
        module: ModuleType | None = None  # that the previous instruction has put on the stack
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if module is not None:
                if instruction.opname not in _READS_ATTRIBUTE:
                    return False
                value = self._read(vars(module), name)
            elif instruction.opname in _READS_NAME:
                value = self._read(variables, name)
                if value is _NOTHING:
                    value = self._read(vars(builtins), name)
            elif instruction.opname in _READS_ATTRIBUTE:
                if name not in _METHODS:
                    return False
                continue
            elif _binds(instruction, outer):
                return False
            else:
                continue
            module = value if isinstance(value, ModuleType) else None
            if module is None and not (is_plain(value) or self._follows(value)):
                return False
        return all(
            self._follows_code(constant, variables, outer)
            for constant in code.co_consts
            if isinstance(constant, CodeType)
        )

    def _read(self, variables: Mapping[str, Any], name: str) -> Any:
        value = variables.get(name, _NOTHING)
        self._reads[id(variables), name] = variables, value
        return value


_NOTHING = object()


def _content_of(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return _NOTHING


def _binds(instruction: dis.Instruction, outer: set[str]) -> bool:
    """Whether an instruction imports, or binds or deletes a name that other code may read."""
    return instruction.opcode in dis.hasname or (
        instruction.opname in _BINDS_CELL and instruction.argval in outer
    )


def _is_known(value: Any) -> bool:
    return any(value is other for other in _KNOWN)

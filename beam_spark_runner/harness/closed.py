"""Which functions leave no trace of a result, by their code.

A function that reads no variable but its own, and calls nothing but builtin functions and methods
of builtin types, has nowhere to keep a reference to what it returns. Whatever it makes of values
of builtin types is of builtin types again, and can be changed only by whoever gets it. Nobody
has to look at its results to know that they may wait for each other.

Methods are known by name alone. That is enough as long as every value at hand is of a builtin
type, which is for the caller to see to.
"""

import builtins
import dis
import inspect
import json
import math
import operator
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.harness.constants import is_plain

_TYPES = (
    *(bool, int, float, complex, str, bytes, bytearray),
    *(tuple, list, dict, set, frozenset, range, slice),
)
_METHODS = {name for each in _TYPES for name in dir(each) if not name.startswith("_")}
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


def is_closed(function: Callable[..., Any]) -> bool:
    """Return whether nothing but its caller can refer to what the function returns.

    This holds for arguments of builtin types. A name of a builtin function or of a module that
    the program binds anew while it runs is not noticed.
    """
    if isinstance(function, MethodDescriptorType):
        return function.__objclass__ in _TYPES
    if type(function) is operator.itemgetter or _is_known(function):
        return True
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    return (
        not code.co_flags & _LAZY
        and all(map(is_plain, function.__defaults__ or ()))
        and all(map(is_plain, (function.__kwdefaults__ or {}).values()))
        and all(map(_is_plain_cell, function.__closure__ or ()))
        and _is_closed_code(
            code, ChainMap(function.__globals__, vars(builtins)), set(code.co_freevars)
        )
    )


def _is_known(value: Any) -> bool:
    return any(value is each for each in _KNOWN)


def _is_plain_cell(cell: CellType) -> bool:
    try:
        return is_plain(cell.cell_contents)
    except ValueError:  # it is empty
        return False


def _is_closed_code(code: CodeType, variables: Mapping[str, Any], outer: set[str]) -> bool:
    """Whether code, and that of functions within it, uses known names only.

    Args:
        code: of a function.
        variables: global and builtin names.
        outer: variables of enclosing functions, which the code may read.
    """
    module: Any = None  # which the instruction before has put on the stack
    for each in dis.get_instructions(code):
        name = each.argval
        if each.opname in _READS_NAME or module is not None:
            if module is not None and each.opname not in _READS_ATTRIBUTE:
                return False
            value = variables.get(name) if module is None else getattr(module, name, None)
            module = value if isinstance(value, ModuleType) else None
            if module is None and not _is_known(value):
                return False
        elif each.opname in _READS_ATTRIBUTE:
            if name not in _METHODS:
                return False
        elif each.opcode in dis.hasname or (
            each.opname in _BINDS_CELL and name in outer
        ):  # imports, and what binds or deletes names
            return False
    return all(
        _is_closed_code(each, variables, outer)
        for each in code.co_consts
        if isinstance(each, CodeType)
    )

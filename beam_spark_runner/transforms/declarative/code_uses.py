"""What the code of a function uses of the variables around it, as its bytecode shows.

Works for all versions of Python that are supported: only the kinds of variables that instructions
name are looked at, and whether an attribute is used directly afterwards.
"""

import dis
import functools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from types import CodeType
from typing import NamedTuple

_IGNORED = {"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "RESUME", "PRECALL", "NOT_TAKEN"}
_BY_NAME = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR")
_COPIES = {"COPY", "DUP_TOP"}  # an attribute is changed by an operator


class CodeUses(NamedTuple):
    """The uses of variables by code; that of functions which it defines is not included.

    Attributes:
        global_names: Global variables that it reads.
        attributes: Attributes that it reads, by variable.
        passed: Variables that it uses otherwise than by one attribute.
        changed: Attributes that it sets or deletes, by variable.
        assigned: Variables of others that it sets or deletes: global ones and those of functions
            around it.
        inner: The code of functions and classes that it defines.
    """

    global_names: Collection[str]
    attributes: Mapping[str, Collection[str]]
    passed: Collection[str]
    changed: Mapping[str, Collection[str]]
    assigned: Collection[str]
    inner: Collection[CodeType]


@functools.lru_cache(maxsize=1_000)
def uses_of(code: CodeType) -> CodeUses:
    """Return what code uses."""
    instructions = [each for each in dis.get_instructions(code) if each.opname not in _IGNORED]
    global_names: set[str] = set()
    attributes: dict[str, set[str]] = defaultdict(set)
    changed: dict[str, set[str]] = defaultdict(set)
    passed: set[str] = set()
    assigned: set[str] = set()
    for place, instruction in enumerate(instructions):
        name = instruction.opname
        if name.startswith(("STORE_GLOBAL", "DELETE_GLOBAL")) or (
            name.startswith(("STORE_DEREF", "DELETE_DEREF"))
            and instruction.argval in code.co_freevars
        ):
            assigned.add(instruction.argval)
        loaded = [*_loaded(code, instruction)]
        if name.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
            global_names.update(loaded)
        if not loaded:
            continue
        passed.update(loaded[:-1])
        variable = loaded[-1]
        following = instructions[place + 1]
        if following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes[variable].add(following.argval)
        elif following.opname in ("STORE_ATTR", "DELETE_ATTR"):
            changed[variable].add(following.argval)
        elif following.opname in _COPIES and instructions[place + 2].opname == "LOAD_ATTR":
            changed[variable].add(instructions[place + 2].argval)
        elif following.opname not in ("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD"):
            passed.add(variable)
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return CodeUses(global_names, attributes, passed, changed, assigned, inner)


def _loaded(code: CodeType, instruction: dis.Instruction) -> Iterator[str]:
    """Yield the variables whose values an instruction puts on the stack, the last one on top."""
    name, found = instruction.opname, instruction.argval
    if name.startswith(_BY_NAME):
        yield found
    elif name.startswith("STORE_FAST_LOAD_FAST"):
        yield found[1]
    elif name.startswith("LOAD_FAST"):
        # A cell is only loaded itself for a function that is defined here, which is read as well.
        cells = {*code.co_cellvars, *code.co_freevars}
        for each in found if isinstance(found, tuple) else (found,):
            if each not in cells:
                yield each

"""The class and the plain attributes of an exception of user code, as text that can be sent.

The program that runs the pipeline raises the exception again as one of the same class, so that
its ``except`` clauses catch it. Neither the exception nor its class is pickled: it is user code,
and the process that reads this need not have it.
"""

import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass

from beam_spark_runner.core.rendering import render_error, text_of, valid_text

NOTES_OF_OURS = ("_tagged_with_step", "_element_of_step")
"""Attributes that Beam and the runner attach to exceptions while they pass."""
_MAX_ATTRIBUTE_CHARACTERS = 1 << 14
_MAX_CHARACTERS = 1 << 16
_MAX_ITEMS = 1_000  # of an attribute, nested ones included
_MAX_PARTS = 100
_DEEPEST = 5
_WELL_KNOWN = (object, BaseException, Exception)  # their attributes are not the user's


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What is known of an exception of user code.

    Attributes:
        classes: The dotted name of its class, then those of its base classes; see ``names_of``.
            Only the first, where only the text of the exception is known.
        attributes: Its ``args`` and attributes that are plain data: a Python literal of a dict.
        cause: Class and message, as in the last line of a traceback.
        parts: The exceptions of an ExceptionGroup.
    """

    classes: tuple[str, ...]
    attributes: str = "{}"
    cause: str = ""
    parts: tuple["Raised", ...] = ()


def raised_of(error: BaseException, depth: int = 0) -> Raised:
    """Describe an exception of any class. Does not raise, whatever user code it calls."""
    parts: tuple[Raised, ...] = ()
    with contextlib.suppress(BaseException):
        if depth < _DEEPEST:
            inner = getattr(error, "exceptions", ())
            if isinstance(inner, tuple) and all(isinstance(each, BaseException) for each in inner):
                parts = tuple(raised_of(each, depth + 1) for each in inner[:_MAX_PARTS])
    return Raised(
        classes=tuple(names_of(error)),
        attributes=_literal_of(error),
        cause=render_error(error).cause if depth else "",
        parts=parts,
    )


def names_of(error: BaseException) -> Iterator[str]:
    """Yield the names of an exception's class and its base classes, the nearest first.

    Built-in classes have no module in their names, as in tracebacks.
    """
    for each in _bases_of(error):
        with contextlib.suppress(BaseException):  # a class may have any value as its name
            # The interpreter's own attributes: a metaclass may have properties of these names.
            module = type.__dict__["__module__"].__get__(each)
            name = type.__dict__["__qualname__"].__get__(each)
            yield valid_text(name if module == "builtins" else f"{module}.{name}", 1_000)


def _bases_of(error: BaseException) -> list[type]:
    bases = type.__dict__["__mro__"].__get__(type(error))
    return [each for each in bases if each not in _WELL_KNOWN]


def _literal_of(error: BaseException) -> str:
    """Return the plain attributes, as far as they are short enough."""
    arguments = BaseException.__dict__["args"].__get__(error)
    shown = tuple(each if _is_plain(each) else text_of(each, 1_000) for each in arguments)
    lines: list[str] = []
    left = _MAX_CHARACTERS
    for name, value in (("args", shown), *_attributes_of(error)):
        if _is_plain(value):
            line = f"{name!r}: {value!r}"
            if len(line) <= min(left, _MAX_ATTRIBUTE_CHARACTERS):
                left -= len(line)
                lines.append(line)
    return f"{{{', '.join(lines)}}}"


def _attributes_of(error: BaseException) -> Iterator[tuple[str, object]]:
    """Yield slots, fields of built-in exceptions such as ``errno``, and the instance's own."""
    for each in _bases_of(error):
        fields = type.__dict__["__dict__"].__get__(each)
        for name, field in fields.items():
            is_field = isinstance(field, types.MemberDescriptorType | types.GetSetDescriptorType)
            if is_field and not name.startswith("__"):
                with contextlib.suppress(BaseException):  # it has no value
                    yield name, field.__get__(error)
    with contextlib.suppress(BaseException):
        for name, value in list(object.__getattribute__(error, "__dict__").items()):
            if type(name) is str and not name.startswith("__") and name not in NOTES_OF_OURS:
                yield name, value


def _is_plain(value: object) -> bool:
    """Whether ``repr`` of a value is a short literal that means the same value."""
    left = _MAX_ITEMS
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        left -= 1
        if left < 0 or depth > _DEEPEST:
            return False
        match each:  # subclasses may have their own ``__repr__``
            case None | True | False:
                pass
            case str() | bytes() if type(each) in (str, bytes):
                if len(each) > _MAX_ATTRIBUTE_CHARACTERS:
                    return False
            case int() if type(each) is int:
                if each.bit_length() > 4_096:
                    return False
            case float() if type(each) is float:
                if each - each != 0:  # infinite, or no number
                    return False
            case list() | tuple() if type(each) in (list, tuple) and len(each) <= left:
                waiting += [(item, depth + 1) for item in each]
            case dict() if type(each) is dict and len(each) <= left:
                waiting += [(item, depth + 1) for pair in each.items() for item in pair]
            case _:
                return False
    return True

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
            if isinstance(inner, tuple) and all(isinstance(part, BaseException) for part in inner):
                parts = tuple(raised_of(part, depth + 1) for part in inner[:_MAX_PARTS])
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
    for class_ in _bases_of(error):
        with contextlib.suppress(BaseException):  # a class may have any value as its name
            # The interpreter's own attributes: a metaclass may have properties of these names.
            module = type.__dict__["__module__"].__get__(class_)
            name = type.__dict__["__qualname__"].__get__(class_)
            yield valid_text(name if module == "builtins" else f"{module}.{name}", 1_000)


def _bases_of(error: BaseException) -> list[type]:
    bases = type.__dict__["__mro__"].__get__(type(error))
    return [class_ for class_ in bases if class_ not in _WELL_KNOWN]


def _literal_of(error: BaseException) -> str:
    """Return the plain attributes, as far as they are short enough."""
    arguments = BaseException.__dict__["args"].__get__(error)
    plain_arguments = tuple(
        argument if _is_plain(argument) else text_of(argument, 1_000) for argument in arguments
    )
    lines: list[str] = []
    room = _MAX_CHARACTERS
    for name, value in (("args", plain_arguments), *_attributes_of(error)):
        if _is_plain(value):
            line = f"{name!r}: {value!r}"
            if len(line) <= min(room, _MAX_ATTRIBUTE_CHARACTERS):
                room -= len(line)
                lines.append(line)
    return f"{{{', '.join(lines)}}}"


def _attributes_of(error: BaseException) -> Iterator[tuple[str, object]]:
    """Yield slots, fields of built-in exceptions such as ``errno``, and the instance's own."""
    for class_ in _bases_of(error):
        fields = type.__dict__["__dict__"].__get__(class_)
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
    room = _MAX_ITEMS
    stack: list[tuple[object, int]] = [(value, 0)]
    while stack:
        current, depth = stack.pop()
        room -= 1
        if room < 0 or depth > _DEEPEST:
            return False
        match current:  # subclasses may have their own ``__repr__``
            case None | True | False:
                pass
            case str() | bytes() if type(current) in (str, bytes):
                if len(current) > _MAX_ATTRIBUTE_CHARACTERS:
                    return False
            case int() if type(current) is int:
                if current.bit_length() > 4_096:
                    return False
            case float() if type(current) is float:
                if current - current != 0:  # infinite, or no number
                    return False
            case list() | tuple() if type(current) in (list, tuple) and len(current) <= room:
                stack += [(item, depth + 1) for item in current]
            case dict() if type(current) is dict and len(current) <= room:
                stack += [(item, depth + 1) for pair in current.items() for item in pair]
            case _:
                return False
    return True

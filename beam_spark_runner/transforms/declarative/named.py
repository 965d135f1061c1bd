"""Callbacks with names, and the error of declarations.

Pickled by value (see ``declarative``).
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

AUTOMATIC = "callback {}"
"""The name of a callback that was given none, with its number."""
_AUTOMATIC_NAME = re.compile(r"callback \d+(/.*)?")
_ARGUMENTS = {0: "no argument", 1: "one argument", 2: "two arguments"}


class DeclarationError(ValueError):
    """A ``KeyedProcess`` has a declaration that is not valid.

    Raised when the pipeline is built.
    """


class Named:
    """A function that is declared by name; calling it calls the function.

    Args:
        name: The name, unique within its ``KeyedProcess``.
        fn: The function.
        was: Names that it had in earlier versions of the pipeline.
    """

    is_named_callback = True
    """Recognises callbacks also if their class was pickled by value, and so is another one."""

    def __init__(self, name: str, fn: Callable[..., Any], was: Sequence[str] = ()) -> None:
        self.name = name
        self.was = tuple(was)
        self.fn = fn

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    @override
    def __repr__(self) -> str:
        return f"<callback {self.name!r}>"


def called(callback: Callable[..., Any], *args: Any) -> Any:
    """Call a callback, and add its name to an exception that it raises."""
    try:
        return callback(*args)
    except Exception as error:
        _add_note(error, f"in the callback {name_of(callback)}")
        raise


def name_of(callback: Callable[..., Any]) -> str:
    """Return how messages name a callback."""
    if isinstance(callback, Named):
        return repr(callback.name)
    return str(getattr(callback, "__qualname__", callback))


def is_automatic(name: str) -> bool:
    """Whether a callback has this name because it was given none."""
    return _AUTOMATIC_NAME.fullmatch(name) is not None


def _add_note(error: Exception, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):  # Python 3.10 has no notes
        error.args = (f"{error.args[0]} [{note}]", *error.args[1:])


def names_in(was: Sequence[str]) -> Sequence[str]:
    """Check the argument ``was`` of declarations, and return it.

    Raises:
        DeclarationError: It is not a sequence of names.
    """
    if not isinstance(was, tuple | list) or not all(isinstance(name, str) for name in was):
        raise DeclarationError(f"was= needs a tuple of names, not {was!r}")
    if "" in was or len({*was}) < len(was):
        raise DeclarationError(f"was= has a name that is empty or given twice: {was!r}")
    return was


def checked_name(name: Any, what: str) -> str:
    """Check a name that a process declares, and return it.

    Args:
        name: What should be the name.
        what: What it names.

    Raises:
        DeclarationError: It is no string, empty, or one that ``declare`` chooses itself.
    """
    if not isinstance(name, str):
        raise DeclarationError(f"the name of {what} must be a string, not {name!r}")
    if not name:
        raise DeclarationError(f"the name of {what} must not be empty")
    if what == CALLBACK and is_automatic(name):
        raise DeclarationError(
            f"the name {name!r} must not be given to {what}: names of this form are those of "
            "callbacks that are declared without a name"
        )
    return name


CALLBACK = "a callback"
"""What ``checked_name`` checks the name of."""


def check_takes(fn: Any, what: str, *counts: int) -> None:
    """Check that something is a function which takes some number of arguments.

    Functions that do not say what they take are assumed to take them.

    Args:
        fn: What should be one.
        what: How messages name it.
        counts: The numbers of arguments with which it may be called.

    Raises:
        DeclarationError: It is not.
    """
    if not callable(fn):
        raise DeclarationError(f"{what} must be a function, not {fn!r}")
    try:
        signature = inspect.signature(fn.fn if isinstance(fn, Named) else fn)
    except (TypeError, ValueError):  # as of some builtins
        return
    if not any(_binds(signature, count) for count in counts):
        expected = " or ".join(_ARGUMENTS[count] for count in counts)
        raise DeclarationError(f"{what} must take {expected}, not {signature}: {fn!r}")


def _binds(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True

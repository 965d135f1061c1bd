"""Callbacks with names, and the error of declarations.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override


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

    def __init__(self, name: str, fn: Callable[..., Any], was: Sequence[str] = ()) -> None:
        self.name = name
        self.was = tuple(was)
        self._fn = fn

    def __call__(self, *args: Any) -> Any:
        return self._fn(*args)

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
    if isinstance(was, str) or not all(isinstance(name, str) for name in was):
        raise DeclarationError(f"was= needs a tuple of names, not {was!r}")
    return was

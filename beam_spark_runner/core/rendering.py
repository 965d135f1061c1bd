"""Converts users' objects and errors to text that can be sent, logged and stored.

``__str__`` and ``__repr__`` are user code: they may raise, or return something that is no text,
invalid Unicode (a lone surrogate, as in names of files), or very long text. Nothing here raises.
"""

import contextlib
import reprlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

MAX_CHARACTERS = 1 << 16
"""The limit of a message. Of a longer one, the beginning and the end are shown."""
MAX_TRACEBACK_LENGTH = 1 << 18
_NO_LIMIT = 1 << 62
_MAX_SHORT_TEXT_LENGTH = 1_000
_MAX_LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class RenderedError:
    """An exception as text. Every field can be encoded as UTF-8, and is of bounded length."""

    class_name: str
    message: str
    traceback_text: str

    @property
    def cause(self) -> str:
        """Class and message, as in the last line of a traceback."""
        return f"{self.class_name}: {self.message}"


def render_error(error: BaseException, frames: TracebackType | None = None) -> RenderedError:
    """Render an exception.

    Args:
        error: An exception of any class.
        frames: The traceback to show in place of the exception's own.
    """
    return RenderedError(
        class_name(error),
        message_of(error),
        valid_text(_traceback_of(error, frames or error.__traceback__), MAX_TRACEBACK_LENGTH),
    )


def class_name(value: object) -> str:
    """Return the name of an object's class, even if its metaclass overrides ``__name__``."""
    # The interpreter's own name: a metaclass may have a property of that name.
    return valid_text(type.__dict__["__name__"].__get__(type(value)), 1_000)


def message_of(error: BaseException, limit: int = MAX_CHARACTERS) -> str:
    """Return ``str(error)``; if that raises, a text with the exception's arguments."""
    message = _call(str, error, limit)
    if message is not None:
        return message
    arguments = ", ".join(map(text_of, _arguments(error)))
    return valid_text(f"<its __str__ raises; arguments: ({arguments})>")


def whole_message_of(error: BaseException) -> str:
    """Return ``message_of(error)`` without a limit, to search in it."""
    return message_of(error, _NO_LIMIT)


def texts_in(error: BaseException) -> list[str]:
    """Return all text that an exception has: its message, and arguments that are text."""
    arguments = [
        valid_text(argument) for argument in _arguments(error) if isinstance(argument, str)
    ]
    return [message_of(error), *arguments]


def text_of(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Return ``repr(value)``, at most ``limit`` characters of it."""
    text = _call(repr, value, limit)
    return f"<a {class_name(value)} whose __repr__ raises>" if text is None else text


def short_text_of(value: object) -> str:
    """Return ``repr(value)``, at most 1,000 characters of it.

    Long strings, bytes and collections are not rendered as a whole: an element may be as large
    as memory allows.
    """
    text = _call(_Short().repr, value, _MAX_SHORT_TEXT_LENGTH)
    return f"<a {class_name(value)} whose __repr__ raises>" if text is None else text


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxtuple = self.maxlist = self.maxarray = self.maxdict = 20
        self.maxset = self.maxfrozenset = self.maxdeque = 20
        self.maxstring = self.maxother = 400
        self.maxlong = 100

    def repr_bytes(self, value: bytes, level: int) -> str:
        """Render ``bytes``; called by ``reprlib``, which does not shorten them itself."""
        part = bytes(value[: self.maxstring])
        return repr(part) if len(part) == len(value) else f"{part!r}... ({len(value):,} bytes)"

    repr_bytearray = repr_bytes


def valid_text(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return a text with escapes in place of surrogates, without the middle if it is too long."""
    text = str.__str__(text)  # a plain ``str``, if it is of a user's subclass
    if len(text) > limit:
        half = limit // 2
        left_out = len(text) - 2 * half
        text = (
            f"{text[:half]} … ({left_out:,} characters are left out) … {text[len(text) - half :]}"
        )
    return text.encode("utf-8", "backslashreplace").decode()


def _call(render: Callable[[object], str], value: object, limit: int) -> str | None:
    """Call ``str`` or ``repr``; return None if it raises."""
    try:
        text = render(value)
        return valid_text(text, limit)
    except BaseException:  # sys.exit() in a __str__, for instance
        return None


def _arguments(error: BaseException) -> tuple[object, ...]:
    # A class may have a property of that name.
    arguments: tuple[object, ...] = BaseException.__dict__["args"].__get__(error)
    return arguments


def _traceback_of(error: BaseException, frames: TracebackType | None) -> str:
    with contextlib.suppress(BaseException):
        return "".join(traceback.format_exception(type(error), error, frames))
    # An attribute of the class that Python reads raises, such as its module's name or notes.
    lines = ["Traceback (most recent call last):\n"]
    with contextlib.suppress(BaseException):
        lines += traceback.format_tb(frames)
    return "".join([*lines, f"{class_name(error)}: {message_of(error)}\n"])


def first_line(error: BaseException) -> str:
    """Return the class of an exception and the first line of its text, shortened."""
    return f"{class_name(error)}: {first_line_of(message_of(error))}"[:_MAX_LINE_LENGTH]


def first_line_of(text: str) -> str:
    r"""Return the first line with anything in it; empty: there is none.

    Example:
        >>> first_line_of("\n  \n  no such file\nTraceback")
        'no such file'
    """
    return next(filter(None, map(str.strip, text.splitlines())), "")

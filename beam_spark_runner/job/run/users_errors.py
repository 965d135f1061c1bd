"""Gives errors of user code the class that user code has raised, for a program's ``except``.

An error that is a ``ValueError`` and a ``BundleFailedError`` has its own class, a subclass of
both. Only classes that the program has imported are used: no module is imported because an error
names it, and no code of the user's class is run, which may want other arguments, keep a list of
its subclasses, or forbid them.
"""

import ast
import functools
import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NoReturn, cast

from typing_extensions import override

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.core.raised import Raised

_OF_CONTROL = frozenset(
    ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "asyncio.exceptions.CancelledError")
)
"""Classes by which Python ends programs, generators and tasks.

That user code in a worker raised one must not end the program that runs the pipeline.
"""
_IS_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement has made the class


class _OfUsersClass(BundleFailedError):
    """The first base class of all classes that are made here.

    Its methods precede those of the user's class, which rely on an ``__init__`` that is not called.
    """

    @override
    def __init_subclass__(cls) -> None:
        """Do not call the one of the user's class."""

    @property
    @override
    def step(self) -> str:  # type: ignore[override]
        return self._failure.step

    @property
    @override
    def cause(self) -> str:  # type: ignore[override]
        return self._failure.cause

    @property
    @override
    def traceback_text(self) -> str:  # type: ignore[override]
        return self._failure.traceback_text

    @property
    @override
    def raised(self) -> Raised | None:  # type: ignore[override]
        return self._failure.raised

    @property
    def _failure(self) -> BundleFailedError:
        found: BundleFailedError = object.__getattribute__(self, "__dict__")["_failure"]
        return found

    __getattribute__ = BaseException.__getattribute__
    __setattr__ = BaseException.__setattr__
    __delattr__ = BaseException.__delattr__
    __repr__ = BaseException.__repr__
    __eq__ = BaseException.__eq__
    __hash__ = BaseException.__hash__

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the error of step {self.step} has no attribute {name!r}. Only attributes that are "
            "plain data (numbers, strings, bytes, lists, tuples, dicts) come from workers"
        )

    @override
    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return as_users_own, (self._failure,)


def as_users_own(error: BundleFailedError) -> BundleFailedError:
    """Return an error that is also of the class that user code raised.

    Returns:
        The error itself, if this program does not know the class, or cannot subclass it.
    """
    raised = error.raised
    if raised is None or not _OF_CONTROL.isdisjoint(raised.classes):
        return error
    for name in raised.classes:
        if (class_ := _imported_class(name)) is not None:
            try:
                return _make(error, raised, class_)
            except Exception:  # classes of extension modules may forbid it; take a base class
                continue
    return error


def _imported_class(name: str) -> type[BaseException] | None:
    """Look up a class by its dotted name in modules that are imported already."""
    path = name.split(".")
    if len(path) == 1:  # tracebacks leave out ``builtins`` and ``__main__``
        return _member("builtins", path) or _member("__main__", path)
    for length in range(len(path) - 1, 0, -1):
        if (class_ := _member(".".join(path[:length]), path[length:])) is not None:
            return class_
    return None


def _member(module: str, path: Sequence[str]) -> type[BaseException] | None:
    # Read from the dicts: a module's ``__getattr__`` may import further modules.
    member: Any = sys.modules.get(module)
    for name in path:
        members = getattr(member, "__dict__", None)
        member = members.get(name) if isinstance(members, Mapping) else None
    return member if isinstance(member, type) and issubclass(member, BaseException) else None


def _make(
    error: BundleFailedError, raised: Raised, class_: type[BaseException]
) -> BundleFailedError:
    if issubclass(BundleFailedError, class_):
        return error
    mixed = _mixed(cast("Hashable", class_))
    static: type = mixed
    while static.__flags__ & _IS_MADE_BY_PYTHON:
        assert static.__base__ is not None
        static = static.__base__
    arguments: tuple[Any, ...] = ()
    if raised.parts:
        # An ExceptionGroup is nothing without its exceptions.
        parts = [BundleFailedError(error.step, part.cause, "", part) for part in raised.parts]
        arguments = (error.cause, [as_users_own(part) for part in parts])
    mixed_error: BundleFailedError = static.__new__(mixed, *arguments)
    for name, value in ast.literal_eval(raised.attributes).items():
        try:
            object.__setattr__(mixed_error, name, value)
        except (AttributeError, TypeError):  # it cannot be set, or is one of ours
            continue
    mixed_error.__dict__["_failure"] = error
    if isinstance(mixed_error, SyntaxError):
        mixed_error.msg = str(error)  # which Python prints in place of the error's text
    if not mixed_error.args:
        mixed_error.args = (error.cause,)
    return mixed_error


@functools.lru_cache(maxsize=256)
def _mixed(class_: type[BaseException]) -> type[BundleFailedError]:
    """Return the subclass of BundleFailedError and a class; by ``type``, as metaclasses differ."""
    names = {"__module__": BundleFailedError.__module__, "__doc__": BundleFailedError.__doc__}
    mixed_class = type.__new__(
        type(class_), BundleFailedError.__name__, (_OfUsersClass, class_), names
    )
    return cast("type[BundleFailedError]", mixed_class)

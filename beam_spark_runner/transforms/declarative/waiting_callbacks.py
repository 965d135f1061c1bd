"""What waits for the result of a future: callbacks, and what takes results to other futures.

Each knows how it is described in a tree of names, see ``continuations``.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from beam_spark_runner.transforms.declarative.named import called
from beam_spark_runner.transforms.declarative.returned import (
    check_dropped,
    check_future,
    check_result,
)


class Kind(Enum):
    """What becomes of the result of a callback."""

    APPLY = "apply"  # it is the result
    ACCEPT = "accept"  # it is dropped
    COMPOSE = "compose"  # it is a future, whose result is the result


class Described(NamedTuple):
    """What waits for the result of a future, as data.

    Attributes:
        kind: The value of a ``Kind``; of a branch, with ``BRANCH`` behind it; or ``FORWARD``,
            ``TRUE``, ``FALSE``.
        callbacks: A callback; or a condition and two callbacks, the last of which may be None; or
            nothing.
        result: The future that gets a result from it.
    """

    kind: str
    callbacks: tuple[Any, ...]
    result: Any


BRANCH = " if"
"""Ends the kind of a branch."""
FORWARD = "forward"
"""The kind of what passes a result to the future of a callback that has returned a future."""
TRUE, FALSE = "true", "false"
"""The kinds of what passes a pair of a condition and a result, likewise."""


class _Future(Protocol):
    def _complete(self, result: Any) -> None: ...

    def _continue(self, continuation: "Continuation") -> None: ...


class Continuation(Protocol):
    """What waits for the result of a future."""

    def run(self, value: Any) -> None:
        """Continue with the result."""
        ...

    def described(self) -> Described | None:
        """Return what it is; None: it depends on other futures, too."""
        ...


class Then:
    """A callback, and the future of its result."""

    __slots__ = ("_fn", "_kind", "_result")

    def __init__(self, kind: Kind, fn: Callable[[Any], Any], result: _Future) -> None:
        self._kind, self._fn, self._result = kind, fn, result

    def run(self, value: Any) -> None:
        """See ``Continuation``."""
        returned = called(self._fn, value)
        if self._kind is Kind.COMPOSE:
            check_future(returned, "a callback of then_compose", self._fn)
            returned._continue(Forward(self._result))
        else:
            self._result._complete(_value_of(self._kind, returned, self._fn))

    def described(self) -> Described:
        """See ``Continuation``."""
        return Described(self._kind.value, (self._fn,), self._result)


class Branch:
    """A condition and the callbacks of its two branches."""

    def __init__(
        self,
        kind: Kind,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None,
        result: _Future,
    ) -> None:
        self._kind, self._condition, self._result = kind, condition, result
        self._if_true, self._if_false = if_true, if_false

    def run(self, value: Any) -> None:
        """See ``Continuation``."""
        holds = bool(called(self._condition, value))
        fn = self._if_true if holds else self._if_false
        if fn is None:
            self._result._complete((holds, None))
            return
        returned = called(fn, value)
        if self._kind is Kind.COMPOSE:
            check_future(returned, "a callback of then_conditionally_compose", fn)
            returned._continue(Pair(holds, self._result))
        else:
            self._result._complete((holds, _value_of(self._kind, returned, fn)))

    def described(self) -> Described:
        """See ``Continuation``."""
        callbacks = self._condition, self._if_true, self._if_false
        return Described(self._kind.value + BRANCH, callbacks, self._result)


class Forward:
    """Passes the result of a future that a callback has returned to the callback's own future."""

    def __init__(self, result: _Future) -> None:
        self._result = result

    def run(self, value: Any) -> None:
        """See ``Continuation``."""
        self._result._complete(value)

    def described(self) -> Described:
        """See ``Continuation``."""
        return Described(FORWARD, (), self._result)


class Pair:
    """As ``Forward``, for a branch."""

    def __init__(self, holds: bool, result: _Future) -> None:
        self._holds, self._result = holds, result

    def run(self, value: Any) -> None:
        """See ``Continuation``."""
        self._result._complete((self._holds, value))

    def described(self) -> Described:
        """See ``Continuation``."""
        return Described(TRUE if self._holds else FALSE, (), self._result)


def _value_of(kind: Kind, returned: Any, fn: Callable[..., Any]) -> Any:
    """Return the result of a future whose callback has returned something."""
    if kind is Kind.APPLY:
        check_result(returned, "the result of a callback", fn)
        return returned
    check_dropped(returned, fn)
    return None

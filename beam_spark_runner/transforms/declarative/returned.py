"""Checks of callbacks, and of what they have returned.

Pickled by value (see ``declarative``).
"""

import inspect
from collections.abc import Callable
from typing import Any


def check_future(returned: Any, what: str, fn: Callable[..., Any] | None = None) -> None:
    """Check that something is a ``StateFuture``.

    Args:
        returned: What should be one.
        what: What needs it.
        fn: The callback that has returned it; None: no callback has.

    Raises:
        TypeError: It is not.
    """
    if not getattr(returned, "is_state_future", False):
        which = "" if fn is None else f" ({fn!r})"
        raise TypeError(f"{what}{which} needs a StateFuture, not {returned!r}")


def check_result(result: Any, what: str, fn: Callable[..., Any] | None = None) -> None:
    """Check that something is no ``StateFuture``.

    Args:
        result: What should be a value.
        what: What it is.
        fn: The callback that has returned it; None: no callback has.

    Raises:
        TypeError: It is one.
    """
    if getattr(type(result), "is_state_future", False):
        which = "" if fn is None else f" ({fn!r})"
        raise TypeError(f"{what}{which} is a StateFuture: use then_compose to wait for it")


def check_dropped(result: Any, fn: Callable[..., Any]) -> None:
    """Check that a callback whose result nobody uses has run.

    Raises:
        TypeError: It is a generator or coroutine, so that it has not.
    """
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        raise TypeError(
            f"the callback ({fn!r}) is a generator or coroutine, which nobody runs: it should emit "
            "by ctx.output"
        )


def check_callable(fn: Any) -> None:
    """Check that a callback is a function.

    Raises:
        TypeError: It is not.
    """
    if not callable(fn):
        raise TypeError(f"a callback must be a function, not {fn!r}")

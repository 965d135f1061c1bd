"""Names the level that a Python worker ran in the stack that it leaves when it crashes.

One task may run several levels, so that Spark's stage does not say which of them crashed.
"""

import re
from collections.abc import Callable

_NAME = "beam_level_"
_FRAME = re.compile(rf"^\s*File .*, line \d+ in {_NAME}(\d+)$", re.MULTILINE)


def named_by_level(level: int, function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls another one, and has the number of a level in its name."""

    def run(*arguments: object) -> None:
        function(*arguments)

    run.__code__ = run.__code__.replace(co_name=f"{_NAME}{level}")
    return run


def level_in(stack: str) -> int | None:
    """Return the level in the stack of a crash; None: there is none, or the worker was killed."""
    match = _FRAME.search(stack)
    return None if match is None else int(match[1])

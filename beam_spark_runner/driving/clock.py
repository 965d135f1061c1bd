"""Time and background work, which whoever starts a run provides."""

from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """The clocks of the driver's machine."""

    def now_us(self) -> int:
        """Return the time since the epoch of Unix, in microseconds. It may be set back."""
        ...

    def monotonic_ns(self) -> int:
        """Return a time in nanoseconds that never goes back."""
        ...


class Pending(Protocol):
    """Work that is done in the background."""

    def result(self) -> Any:
        """Wait for its end; return its result, or raise its error."""
        ...


class Background(Protocol):
    """Does work while the caller continues, one piece after another; an ``Executor`` is one."""

    def submit(self, work: Callable[[], Any], /) -> Pending:
        """Begin work."""
        ...

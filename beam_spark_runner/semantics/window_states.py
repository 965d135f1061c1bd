"""The state of a key's windows between panes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from beam_spark_runner.core.time import last_moment
from beam_spark_runner.semantics.trigger_machines import TriggerState

LastUs = Callable[[Any], int]
"""Returns the largest timestamp of a window, in microseconds."""


class PaneValues(Protocol):
    """The values of a window's next pane."""

    def append(self, value: Any) -> None:
        """Add a value."""

    def absorb(self, other: Any) -> None:
        """Add the values of another object of this class, which is not used any more."""

    def pane(self, *, keeps: bool) -> Any:
        """Return all values, for a pane.

        Args:
            keeps: Whether to keep them for the next pane, too.
        """


class ListedValues:
    """See ``PaneValues``. The values are in a list, in memory."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: list[Any] = []

    def append(self, value: Any) -> None:
        """See ``PaneValues.append``."""
        self._values.append(value)

    def absorb(self, other: "ListedValues") -> None:
        """See ``PaneValues.absorb``."""
        self._values += other._values

    def pane(self, *, keeps: bool) -> list[Any]:
        """See ``PaneValues.pane``."""
        values = self._values
        self._values = [*values] if keeps else []
        return values


@dataclass(slots=True)
class WindowState:
    """The state of one window of a key.

    Attributes:
        last_us: The window's largest timestamp, cached because it is slow to compute.
        trigger: The state of the trigger.
        values: The values of the next pane: all so far if panes accumulate, else those since the
            last pane.
        has_news: Whether there are values that no pane has had yet.
        hold_us: The timestamp of the next pane, if elements determine it; else None.
        panes: The number of panes that have fired.
        later_panes: The number of these that fired after the end of the window.
        is_closed: Whether the trigger has finished; further elements are dropped.
        has_ended: Whether the on-time pane, if any, has fired after the end of the window. Until
            then, the next pane after the end is the on-time pane, so that no late pane has a value
            that was on time.
        has_expired: Whether the window has expired, and is not among those of its key any more.
    """

    last_us: int
    trigger: TriggerState = field(default_factory=TriggerState)
    values: PaneValues = field(default_factory=ListedValues)
    has_news: bool = False
    hold_us: int | None = None
    panes: int = 0
    later_panes: int = 0
    is_closed: bool = False
    has_ended: bool = False
    has_expired: bool = False


KeyWindows = dict[Any, WindowState]
"""The states of all windows of one key that have not expired, by window."""


def in_order(windows: KeyWindows) -> list[tuple[Any, WindowState]]:
    """Return windows and their states, in the order of the windows' ends."""
    return sorted(windows.items(), key=lambda item: item[1].last_us)


def last_us_of(window: Any) -> int:
    """Return the largest timestamp of a window, in microseconds."""
    return last_moment(window.max_timestamp().micros)

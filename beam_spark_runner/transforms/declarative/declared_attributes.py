"""What a ``KeyedProcess`` declares as attributes of its class, and its timers.

Accessed through an instance, states and timers are those of the current record's key and window.

Pickled by value (see ``declarative``).
"""

import copy
from typing import Any, TypeVar

from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.declarative.futures import ImmediateMachine

_Declared = TypeVar("_Declared", bound="DeclaredAttribute")
RUNNING = "_beam_spark_runner_declared"
"""The attribute of a ``KeyedProcess`` that has its machine, while it declares or processes."""


class DeclaredAttribute:
    """What a class declares, and an instance uses.

    Args:
        name: The name, unique within the process.
    """

    is_declared_attribute = True
    """Recognises states and timers also if their class was pickled by value, and so is another."""

    def __init__(self, name: str) -> None:
        if not (name and isinstance(name, str)):
            raise TypeError(f"{type(self).__name__} needs a name, not {name!r}")
        self.name = name
        self._machine: ImmediateMachine | None = None

    def __get__(self: _Declared, process: Any, owner: Any = None) -> _Declared:
        if process is None:
            return self
        running = vars(process).get(RUNNING)
        if running is None:
            return self  # which refuses to be used
        bound: _Declared | None = running.bound.get(self.name)
        if bound is None:
            bound = running.bound[self.name] = copy.copy(self)
            bound._machine = running.machine
        return bound

    def _running_machine(self) -> ImmediateMachine:
        """Return the machine that processes a record now.

        Raises:
            RuntimeError: None is processed.
        """
        if self._machine is None or self._machine.record is None:
            raise RuntimeError(f"{self.name!r} is used outside of the callbacks of a record")
        return self._machine


class _DeclaredTimer(DeclaredAttribute):
    """A timer of each key and window, which is set and cleared at once."""

    time_domain: str

    def set(self, timestamp: Any, tag: str = "") -> None:
        """Set the timer; if it is set already, its time is replaced.

        Args:
            timestamp: When it fires.
            tag: Distinguishes timers of one name; each is set, and fires, separately.
        """
        self._timer().set(Timestamp.of(timestamp), dynamic_timer_tag=tag)

    def clear(self, tag: str = "") -> None:
        """Clear the timer, if it is set."""
        self._timer().clear(dynamic_timer_tag=tag)

    def _timer(self) -> Any:
        return self._running_machine().record.timers[self.name]


class EventTimer(_DeclaredTimer):
    """A timer that fires when the watermark passes its time; see ``declare_on_event_time``."""

    time_domain = TimeDomain.WATERMARK


class ProcessingTimer(_DeclaredTimer):
    """A timer that fires at a time of the clock; see ``declare_on_processing_time``."""

    time_domain = TimeDomain.REAL_TIME

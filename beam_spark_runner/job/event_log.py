"""The events of a job in order, for readers that begin early, late, or after the end."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class EventLog(Generic[_T]):
    """Events that are appended until the log is closed.

    Threads: any.

    Args:
        most: how many events the log has room for; the oldest are dropped. None: any number.

    Example:
        >>> log = EventLog()
        >>> log.append("started")
        >>> log.append("done")
        >>> log.close()
        >>> list(log.follow())
        ['started', 'done']
    """

    def __init__(self, most: int | None = None) -> None:
        self._events: deque[_T] = deque(maxlen=most)
        self._appended = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def append(self, event: _T) -> None:
        """Add an event. One that comes after the end is for those who have not read yet."""
        with self._changed:
            self._events.append(event)
            self._appended += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let those who follow the log end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def events(self) -> tuple[_T, ...]:
        """Return the events that the log has now."""
        with self._changed:
            return tuple(self._events)

    def follow(self) -> Iterator[_T]:
        """Yield the events of the log, and then each new one, until the log is closed.

        A reader that is slower by more events than the log has room for misses the oldest.
        """
        position = 0
        while True:
            with self._changed:
                while not self._is_closed and self._appended == position:
                    self._changed.wait()
                missing = self._appended - len(self._events)
                found = list(self._events)[max(0, position - missing) :]
                position = self._appended
            if not found:
                return
            yield from found

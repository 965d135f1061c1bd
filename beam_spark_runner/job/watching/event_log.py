"""An ordered log of events, which readers can follow from its beginning at any time."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

_T = TypeVar("_T")
_In = TypeVar("_In", contravariant=True)


class Sink(Protocol[_In]):
    """Where events are appended, too."""

    def append(self, event: _In) -> None:
        """Append an event, without waiting."""
        ...


class EventLog(Generic[_T]):
    """Events that are appended until the log is closed.

    Threads: any.

    Args:
        max_events: The most events that the log stores; it drops the oldest. None: no limit.
        also: Another log to which each event is appended, too. ``close`` does not close it.
        max_bytes: The most bytes that it stores, but for the last event. None: no limit.
        size_of: Returns the size of an event in bytes.

    Example:
        >>> log = EventLog()
        >>> log.append("started")
        >>> log.append("done")
        >>> log.close()
        >>> list(log.follow())
        ['started', 'done']
    """

    def __init__(
        self,
        max_events: int | None = None,
        also: Sink[_T] | None = None,
        *,
        max_bytes: int | None = None,
        size_of: Callable[[_T], int] = lambda _: 0,
    ) -> None:
        self._events: deque[_T] = deque()
        self._max_events = sys.maxsize if max_events is None else max_events
        self._max_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._size_of = size_of
        self._bytes = 0
        self._also = also
        self._appended = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def append(self, event: _T) -> None:
        """Append an event. After ``close``, only readers that have not ended yet get it."""
        with self._changed:
            self._events.append(event)
            self._bytes += self._size_of(event)
            while len(self._events) > self._max_events or (
                self._bytes > self._max_bytes and len(self._events) > 1
            ):
                self._bytes -= self._size_of(self._events.popleft())
            self._appended += 1
            if self._also is not None:
                self._also.append(event)
            self._changed.notify_all()

    @property
    def appended(self) -> int:
        """How many events were appended so far."""
        return self._appended

    def forward_to(self, sink: Sink[_T], first: int) -> None:
        """Append all events from now on to another log, too, and some that this one has.

        Args:
            sink: The other log, in place of any earlier one.
            first: The number of the first event that it gets, from 0, if it is still stored.
        """
        with self._changed:
            dropped = self._appended - len(self._events)
            for event in list(self._events)[max(0, first - dropped) :]:
                sink.append(event)
            self._also = sink

    @property
    def size_bytes(self) -> int:
        """The size of all events that the log stores now, in bytes."""
        return self._bytes

    def close(self) -> None:
        """End the iterators of all readers once they have read all events."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Have all waiting readers call their ``is_wanted`` again."""
        with self._changed:
            self._changed.notify_all()

    def events(self) -> tuple[_T, ...]:
        """Return the events that the log stores now."""
        with self._changed:
            return tuple(self._events)

    def follow(self, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[_T]:
        """Yield the events of the log, and then each new one, until the log is closed.

        A reader misses events that the log has dropped before they were read.

        Args:
            is_wanted: Returns whether to wait for more events. It is called when all events have
                been read, and after ``wake``.
        """
        position = 0
        while True:
            with self._changed:
                while not self._is_closed and self._appended == position and is_wanted():
                    self._changed.wait()
                dropped = self._appended - len(self._events)
                events = list(self._events)[max(0, position - dropped) :]
                position = self._appended
            if not events:
                return
            yield from events

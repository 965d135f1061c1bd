"""The last events of a machine, for its errors and for log lines about it."""

from collections import deque

from typing_extensions import override

MAX_EVENTS = 20
_MAX_EVENT_LENGTH = 120  # characters: some have the text of an error
_TURNS = 2  # events that take turns, such as "a line" and "sent", are counted, not repeated


class Story:
    """Remembers what happened last, and when; a few words for each event.

    Example:
        >>> story = Story(100.0)
        >>> for _ in range(3):
        ...     story.note(100.5, "line")
        ...     story.note(100.5, "sent")
        >>> story.note(102.25, "lost: Broken pipe")
        >>> print(story)
        0.5 s: line x3, 0.5 s: sent x3, 2.2 s: lost: Broken pipe
    """

    def __init__(self, began_s: float) -> None:
        """Begin the story; its times count from ``began_s``."""
        self._began_s = began_s
        self._events: deque[_Event] = deque(maxlen=MAX_EVENTS)

    def note(self, now_s: float, event: str) -> None:
        """Note an event. One like the last or the last but one only adds to its count."""
        for back in range(1, min(_TURNS, len(self._events)) + 1):
            if self._events[-back].text == event:
                self._events[-back].count += 1
                self._events[-back].at_s = now_s
                return
        self._events.append(_Event(event, now_s))

    def __len__(self) -> int:
        """Return how many events are remembered; equal ones that were counted are one."""
        return len(self._events)

    @override
    def __str__(self) -> str:
        """Return the events, in order, each with the seconds from the beginning to the latest."""
        return ", ".join(
            f"{event.at_s - self._began_s:.1f} s: {event.text[:_MAX_EVENT_LENGTH]}"
            + (f" x{event.count}" if event.count > 1 else "")
            for event in self._events
        )


class _Event:
    __slots__ = ("at_s", "count", "text")

    def __init__(self, text: str, at_s: float) -> None:
        self.text = text
        self.at_s = at_s
        self.count = 1

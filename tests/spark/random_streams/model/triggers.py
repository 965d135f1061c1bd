"""Triggers of the model: one object for each node of each window's trigger.

After the comments on ``Trigger`` in beam_runner_api.proto; when windows merge, after the
TriggerStateMachines of Beam's Java runners.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.spark.random_streams.model.times import Now
from tests.spark.random_streams.windowings import Trigger


def continued(trigger: Trigger) -> Trigger:
    """Return the trigger of what comes after a grouping, as Beam's Python SDK chooses it."""
    match trigger:
        case ("count", _):
            return ("count", 1)
        case ("delay", _) | ("delay",):
            return ("delay", 0)
        case ("watermark", early, late):
            return ("watermark", early and continued(early), late and continued(late))
        case ("each", *parts):
            return ("repeat", ("any", *map(continued, parts)))
        case ("default",) | ("always",):
            return trigger
        case (name, *parts):
            return (name, *map(continued, parts))
    raise ValueError(trigger)


def ends(trigger: Trigger) -> bool:
    """Whether a trigger has a pane at the end of the window, even an empty one."""
    match trigger:
        case ("watermark", *_) | ("default",):
            return True
        case (_, *parts):
            return any(ends(part) for part in parts if isinstance(part, tuple))
    return False


class Node:
    """A node: ``last`` is always the last moment of its window."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self.parts = [node_of(part) for part in trigger[1:] if isinstance(part, tuple)]
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self.is_finished = False
        for part in self.parts:
            part.clear()

    def add(self, now: Now) -> None:
        """Take an element into account."""
        for part in self.parts:
            if not part.is_finished:
                part.add(now)

    def is_ready(self, now: Now, last: int) -> bool:
        """Whether the window fires."""
        raise NotImplementedError

    def fire(self, now: Now, last: int) -> None:
        """The window fires; it was ready."""

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        """Become the node of a window that others, of the same trigger, have merged into."""
        for place, part in enumerate(self.parts):
            part.merge([other.parts[place] for other in others], now, last)


class _Default(Node):
    def is_ready(self, now: Now, last: int) -> bool:
        return now.watermark > last


class _Always(Node):
    def is_ready(self, now: Now, last: int) -> bool:
        return True


class _Once(Node):
    def fire(self, now: Now, last: int) -> None:
        self.clear()
        self.is_finished = True


class _Count(_Once):
    def clear(self) -> None:
        super().clear()
        self._seen = 0

    def add(self, now: Now) -> None:
        self._seen += 1

    def is_ready(self, now: Now, last: int) -> bool:
        return bool(self._seen >= self._trigger[1])

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        counts = [other for other in others if isinstance(other, _Count)]
        self.is_finished = any(other.is_finished for other in counts)
        self._seen = 0 if self.is_finished else sum(other._seen for other in counts)


class _Delay(_Once):
    def clear(self) -> None:
        super().clear()
        self._due: int | None = None

    def add(self, now: Now) -> None:
        if self._due is None:
            self._due = now.clock + self._trigger[1] * 1000

    def is_ready(self, now: Now, last: int) -> bool:
        return self._due is not None and now.clock >= self._due

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        delays = [other for other in others if isinstance(other, _Delay)]
        self.is_finished = any(other.is_finished for other in delays)
        due = [other._due for other in delays if other._due is not None]
        self._due = None if self.is_finished else min(due, default=None)


class _AtEnd(Node):
    """Before the end its early part, if there is one, repeats; after the end its late part."""

    def __init__(self, trigger: Trigger) -> None:
        _, early, late = trigger
        self._early = early and node_of(early)
        self._late = late and node_of(late)
        super().__init__((trigger[0],))

    def clear(self) -> None:
        super().clear()
        self._is_past = False  # the pane at the end has fired
        for part in (self._early, self._late):
            if part:
                part.clear()

    def _part(self) -> Node | None:
        part: Node | None = self._late if self._is_past else self._early
        return part

    def add(self, now: Now) -> None:
        if part := self._part():
            part.add(now)

    def is_ready(self, now: Now, last: int) -> bool:
        if not self._is_past and now.watermark > last:
            return True
        part = self._part()
        return part is not None and part.is_ready(now, last)

    def fire(self, now: Now, last: int) -> None:
        if not self._is_past and now.watermark > last:
            self._is_past = True
            self.is_finished = self._late is None
            if self._early:
                self._early.clear()
        elif part := self._part():
            part.fire(now, last)
            part.clear()

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        ends = [other for other in others if isinstance(other, _AtEnd)]
        self.clear()
        self._is_past = all(other._is_past for other in ends) and now.watermark > last
        self.is_finished = self._is_past and self._late is None
        for part, theirs in (
            (self._early, [other._early for other in ends]),
            (self._late, [other._late for other in ends]),
        ):
            if part and part is self._part():
                part.merge(theirs, now, last)
                part.is_finished = False
        if isinstance(self._early, _Once) and any(end._is_past for end in ends):
            self._early.clear()  # Java's has finished where its window has ended


class _Repeat(Node):
    def is_ready(self, now: Now, last: int) -> bool:
        return self.parts[0].is_ready(now, last)

    def fire(self, now: Now, last: int) -> None:
        self.parts[0].fire(now, last)
        if self.parts[0].is_finished:
            self.parts[0].clear()


class _Any(Node):
    def is_ready(self, now: Now, last: int) -> bool:
        return any(part.is_finished or part.is_ready(now, last) for part in self.parts)

    def fire(self, now: Now, last: int) -> None:
        for part in self.parts:
            if not part.is_finished and part.is_ready(now, last):
                part.fire(now, last)
            elif not part.is_finished:
                part.clear()  # its elements are in the pane
        self._update()

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        super().merge(others, now, last)
        self._update()

    def _update(self) -> None:
        self.is_finished = any(part.is_finished for part in self.parts)


class _All(_Any):
    def is_ready(self, now: Now, last: int) -> bool:
        return all(part.is_finished or part.is_ready(now, last) for part in self.parts)

    def _update(self) -> None:
        self.is_finished = all(part.is_finished for part in self.parts)


class _OrFinally(_Any):
    def fire(self, now: Now, last: int) -> None:
        main, final = self.parts
        for part in (final, main):
            if part.is_ready(now, last):
                part.fire(now, last)
        self._update()


class _Each(Node):
    def _current(self) -> Node | None:
        return next((part for part in self.parts if not part.is_finished), None)

    def add(self, now: Now) -> None:
        if part := self._current():
            part.add(now)

    def is_ready(self, now: Now, last: int) -> bool:
        part = self._current()
        return part is not None and part.is_ready(now, last)

    def fire(self, now: Now, last: int) -> None:
        if part := self._current():
            part.fire(now, last)
        self.is_finished = self._current() is None

    def merge(self, others: Sequence[Node], now: Now, last: int) -> None:
        for place, part in enumerate(self.parts):
            part.merge([other.parts[place] for other in others], now, last)
            if not part.is_finished:
                for later in self.parts[place + 1 :]:
                    later.clear()
                return
        self.is_finished = True


_KINDS: dict[str, type[Node]] = {
    "default": _Default,
    "always": _Always,
    "count": _Count,
    "delay": _Delay,
    "watermark": _AtEnd,
    "repeat": _Repeat,
    "any": _Any,
    "all": _All,
    "each": _Each,
    "or finally": _OrFinally,
}


def node_of(trigger: Trigger) -> Node:
    """Return the node of a trigger, at its beginning."""
    return _KINDS[trigger[0]](trigger)

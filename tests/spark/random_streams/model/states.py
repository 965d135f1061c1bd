"""Stateful DoFns of the model: what ``stateful.STATEFUL`` do, without Beam."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.spark.random_streams.model.times import END, Element, Now, last_of
from tests.spark.random_streams.stateful import AFTER, EVERY, MAX_POLLS, MAX_ROUNDS, ON_CLOCK


@dataclass
class _Cell:
    """State and timer of a key and window."""

    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    rounds: int = 0
    due: int | None = None
    at: int = 0  # of what the timer gives


class States:
    """A stateful step: takes elements and advances, event by event.

    Args:
        kind: one of ``stateful.STATEFUL``, or "in boxes".
        lateness: allowed, in milliseconds.
    """

    def __init__(self, kind: str, lateness: int) -> None:
        self._kind, self._lateness = kind, lateness
        self._cells: dict[tuple[str, Any], _Cell] = {}
        self.dropped = 0  # elements that came too late

    def happens(self, elements: list[Element], now: Now) -> Iterator[Element]:
        """Take what has arrived, then let time continue; yield what timers give."""
        for element in elements:
            if self._is_over(element.window, now.before):
                self.dropped += 1
            else:
                cell = self._cells.setdefault((element.key, element.window), _Cell())
                self._take(cell, element, now)
        for (key, window), cell in [*self._cells.items()]:
            while self._is_due(cell, now):
                yield from self._wake(cell, key, window, now)
            if self._is_over(window, now.watermark):
                del self._cells[key, window]

    def hold(self) -> int:
        """Return the event time that the output must not pass."""
        return min((cell.at for cell in self._cells.values() if cell.due is not None), default=END)

    def _is_over(self, window: Any, watermark: int) -> bool:
        return watermark >= END or watermark > last_of(window) + self._lateness

    def _take(self, cell: _Cell, element: Element, now: Now) -> None:
        last = last_of(element.window)
        match self._kind:
            case "at the end" | "in boxes":
                cell.numbers += element.numbers
                cell.due = cell.at = last
            case "after the last":
                cell.numbers.append(element.numbers[0] if element.numbers else 0)
                cell.times.append(element.at)
                cell.due = None
                if len(cell.numbers) % 3:
                    cell.due = cell.at = min(max(cell.times) + AFTER * 1000, last)
            case "in rounds":
                cell.numbers += element.numbers
                if not cell.rounds:
                    cell.times.append(element.at)
                    cell.due = cell.at = min(min(cell.times) + EVERY * 1000, last)
            case "on the clock":
                cell.numbers += element.numbers
                cell.due = now.clock + int(ON_CLOCK * 1000)
                cell.at = element.at
            case "polling":
                cell.numbers += element.numbers
                if cell.due is None:
                    cell.due = now.clock + int(ON_CLOCK * 1000)
                    cell.at = element.at

    def _is_due(self, cell: _Cell, now: Now) -> bool:
        if cell.due is None:
            return False
        # After the end the clock runs on until nothing waits for it.
        clock = END if now.watermark >= END else now.clock
        return cell.due <= (clock if self._is_on_clock else now.watermark)

    @property
    def _is_on_clock(self) -> bool:
        return self._kind in ("on the clock", "polling")

    def _wake(self, cell: _Cell, key: str, window: Any, now: Now) -> Iterator[Element]:
        at, cell.due = cell.at, None
        if self._kind == "polling":
            cell.rounds = (cell.rounds + 1) % MAX_POLLS
            if cell.rounds:
                cell.due = min(now.clock + int(ON_CLOCK * 1000), END)
                return
        if self._kind == "in rounds":
            cell.rounds += 1
            yield Element(key, (*sorted(set(cell.numbers)), -cell.rounds), at, window)
            if cell.rounds < MAX_ROUNDS and at < last_of(window):
                cell.due = cell.at = min(at + EVERY * 1000, last_of(window))
            else:
                cell.rounds = 0
                cell.times.clear()
        else:
            at = last_of(window) if self._is_on_clock else at
            yield Element(key, tuple(sorted(cell.numbers)), at, window)
            cell.times.clear()
        cell.numbers.clear()

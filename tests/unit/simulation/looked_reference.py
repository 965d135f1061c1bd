"""The declarative step of the undisturbed run: one record after another, on dicts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.lateness import waiting_hold_us
from beam_spark_runner.semantics.timers import Instant, expiration_timer
from tests.unit.simulation.elements import Row, TaskOutput, windowed
from tests.unit.simulation.looked import FIRST, SECOND, WINDOWS, Item, due_of, emit, end_us
from tests.unit.simulation.reference_stage import StageInMemory


class _Key:
    """What there is of a key.

    Attributes:
        queue: the records that were left, in their order.
        timers: those that are set, the ends of windows among them.
        maps: of each window, both maps.
    """

    def __init__(self) -> None:
        self.queue: list[Item] = []
        self.timers: dict[tuple[str, int, Any], Item] = {}
        self.maps: defaultdict[Any, tuple[dict[int, int], dict[int, int]]]
        self.maps = defaultdict(lambda: ({}, {}))

    @property
    def is_empty(self) -> bool:
        return not (self.queue or self.timers or self.maps)

    def set(self, timer: Item) -> None:
        self.timers[timer.kind, timer.number, timer.window] = timer

    def pop_due(self, timer: Item, now: Instant) -> None:
        """Remove a timer that fires, the first of those that are due."""
        due = [each for each in self.timers.values() if _fires_us(each) <= now.watermark_us]
        assert _order(timer) == min(map(_order, due)), "it is not the first one"
        assert self.timers.pop((timer.kind, timer.number, timer.window)) == timer

    def told(self, item: Item) -> tuple[int, ...]:
        """Process a record, and return what it tells."""
        first, second = self.maps[item.window]
        if item.kind == "element":
            place, other = item.number % FIRST, item.number % SECOND
            told: tuple[int, ...] = first.get(place, 0), second.get(other, 0)
            first[place], second[other] = told[0] + 1, told[1] + 1
            due_us = due_of(item.time_us, item.window)
            self.set(Item("due", item.number % 2, due_us, item.window))
            return told
        told = tuple(number for _, number in sorted(first.items()))
        if item.kind == "due":
            told += (second.get(0, 0),)
            first.pop(0, None)
        else:
            del self.maps[item.window]
        return told


class LookedStage(StageInMemory):
    """See ``looked``. The order in which keys take turns, and what is left, is that of the task."""

    def __init__(self) -> None:
        self._keys: defaultdict[str, _Key] = defaultdict(_Key)

    def run(
        self,
        rows: Sequence[Row],
        before: Instant,
        now: Instant,
        done: Sequence[tuple[str, Item]],
        left: Sequence[tuple[str, Item]],
        output: TaskOutput,
    ) -> None:
        """Do what a task has done.

        Args:
            rows: its input.
            before: until when the stage came before.
            now: until when it comes.
            done: see ``TaskOutput``.
            left: see ``TaskOutput``.
            output: gets the outputs.
        """
        for row in rows:
            element = windowed(row, WINDOWS)
            (window,) = element.windows
            end = Item("end", 0, end_us(window), window)
            if _fires_us(end) > before.watermark_us:
                key = self._keys[row.key]
                key.queue.append(Item("element", row.value, row.time_us, window))
                key.set(end)
        for name, item in done:
            key = self._keys[name]
            if key.queue:
                assert key.queue.pop(0) == item, "records of a key come in another order"
            else:
                key.pop_due(item, now)
            emit(output, name, item, key.told(item))
        by_key: defaultdict[str, list[Item]] = defaultdict(list)
        for name, item in left:
            by_key[name].append(item)
        for name, items in by_key.items():
            key = self._keys[name]
            if not key.queue:
                key.pop_due(items[0], now)
                key.queue.append(items[0])
            assert key.queue == items, "what is left is something else"
        assert by_key.keys() == {name for name, key in self._keys.items() if key.queue}
        output.done, output.left = [*done], [*left]
        self._keys = defaultdict(
            _Key, {name: key for name, key in self._keys.items() if not key.is_empty}
        )

    def check_settled(self, now: Instant) -> None:
        """Nothing is left, and no timer is due any more."""
        for name, key in self._keys.items():
            assert not key.queue, f"records of {name} were left"
            assert all(_fires_us(each) > now.watermark_us for each in key.timers.values())

    def all_keys(self) -> Sequence[str]:
        """Return the keys that have something."""
        return [*self._keys]

    def give(self, key: str, other: "LookedStage") -> None:
        """Let another task have what there is of a key."""
        other._keys[key] = self._keys[key]

    def due(self) -> tuple[list[int], list[int]]:
        """See ``StageInMemory``."""
        events = [_fires_us(each) for key in self._keys.values() for each in key.timers.values()]
        if any(key.queue for key in self._keys.values()):
            events.append(MAX_US)  # by which the records hold the watermark
        return events, []

    def holds(self) -> list[int]:
        """See ``StageInMemory``."""
        return [
            _hold_us(each)
            for key in self._keys.values()
            for each in (*key.queue, *key.timers.values())
        ]

    def is_empty(self) -> bool:
        """See ``StageInMemory``."""
        return not self._keys


def _fires_us(timer: Item) -> int:
    if timer.kind == "end":
        return expiration_timer("end", timer.window, 0, None)[0].fires_us
    return timer.time_us


def _order(timer: Item) -> tuple[bool, int]:
    """Return in which order timers fire; then windows end."""
    return timer.kind == "end", timer.time_us


def _hold_us(item: Item) -> int:
    if item.kind == "element":
        return waiting_hold_us(windowed(Row(0, "", 0, item.time_us), WINDOWS))
    return item.time_us

"""GroupByKey of the model.

After Beam's Java ReduceFnRunner and PaneInfoTracker, and ``OutputTime`` in beam_runner_api.proto.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.spark.random_streams.model.times import END, LAST_OF_PANES, Element, Now, last_of, merged
from tests.spark.random_streams.model.triggers import Node, ends, node_of
from tests.spark.random_streams.windowings import Trigger, Windowing, beams_window_fn


@dataclass
class _Window:
    trigger: Node
    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # that hold, since the last pane
    has_news: bool = False
    panes: int = 0
    is_past: bool = False  # the pane on time has fired, or none will be on time
    is_closed: bool = False


class Groups:
    """A grouping: takes elements and advances, event by event.

    Args:
        windowing: of its input.
        trigger: of its input, which may be that of ``windowing``, or what continues it.
        key_of: gives the key of what it takes.
    """

    def __init__(
        self, windowing: Windowing, trigger: Trigger, key_of: Callable[[str], str] = str
    ) -> None:
        self._windowing, self._trigger, self._key_of = windowing, trigger, key_of
        self._window_fn: Any = beams_window_fn(windowing.window_fn)
        self._keys: defaultdict[str, dict[Any, _Window]] = defaultdict(dict)
        self.dropped = 0  # elements that came too late

    def happens(self, elements: list[Element], now: Now) -> Iterator[Element]:
        """Take what has arrived, then let time continue; yield the panes."""
        by_key: defaultdict[str, list[Element]] = defaultdict(list)
        for element in elements:
            if self._is_over(element.window, now.before):
                self.dropped += 1
            else:
                by_key[self._key_of(element.key)].append(element)
        arrival = now._replace(watermark=now.before)
        for key, some in by_key.items():
            yield from self._take(key, some, arrival)
        if now.watermark >= END:
            now = now._replace(clock=END)  # nothing waits for a clock any more
        for key, windows in self._keys.items():
            for window in sorted(windows, key=last_of):
                is_over = self._is_over(window, now.watermark)
                state = windows.pop(window) if is_over else windows[window]
                if not state.is_closed:
                    yield from self._ask(key, window, state, now, is_over)

    def hold(self) -> int:
        """Return the event time that the output must not pass."""
        return min(
            (
                min(state.times, default=last_of(window) + self._late_by(state))
                for windows in self._keys.values()
                for window, state in windows.items()
                if state.has_news
            ),
            default=END,
        )

    def _late_by(self, state: _Window) -> int:
        return self._windowing.lateness * 1000 if state.is_past else 0

    def _is_over(self, window: Any, watermark: int) -> bool:
        return watermark >= END or watermark > last_of(window) + self._windowing.lateness * 1000

    def _take(self, key: str, elements: list[Element], now: Now) -> Iterator[Element]:
        windows = self._keys[key]
        becomes: dict[Any, Any] = {}
        if self._windowing.merges:
            still_open = [each for each in windows if not windows[each].is_closed]
            every = {*still_open, *(element.window for element in elements)}
            becomes = merged(every, self._window_fn)
            for result in set(becomes.values()):
                self._merge(windows, result, [w for w in becomes if becomes[w] == result], now)
        touched = dict.fromkeys(becomes.get(each.window, each.window) for each in elements)
        for window in touched:
            if window not in windows:
                is_past = now.watermark > last_of(window)
                windows[window] = _Window(node_of(self._trigger), is_past=is_past)
        for element in elements:
            window = becomes.get(element.window, element.window)
            state = windows[window]
            if state.is_closed:
                continue
            state.numbers += element.numbers
            state.has_news = True
            state.trigger.add(now)
            at = last_of(window) if self._windowing.at == "end" else element.at
            held = (max if self._windowing.at == "latest" else min)(state.times, default=END)
            if at >= min(now.watermark, held):
                state.times.append(at)
        for window in touched:
            if not windows[window].is_closed:
                yield from self._ask(key, window, windows[window], now, False)

    def _merge(self, windows: dict[Any, _Window], result: Any, gone: list[Any], now: Now) -> None:
        own = windows.get(result)
        if own and own.is_closed:
            own = None
        parts = [own] if own else []
        for window in gone:
            if window in windows and not windows[window].is_closed:
                parts.append(windows.pop(window))
        if not parts:
            return
        trigger = node_of(self._trigger)
        trigger.merge([part.trigger for part in parts], now, last_of(result))
        times = [time for part in parts for time in part.times]
        if times and self._windowing.at == "end":
            times = [last_of(result)]
        windows[result] = _Window(
            trigger,
            [number for part in parts for number in part.numbers],
            times,
            any(part.has_news for part in parts),
            own.panes if own else 0,
            now.watermark > last_of(result) and all(part.is_past for part in parts),
            trigger.is_finished,
        )

    def _ask(
        self, key: str, window: Any, state: _Window, now: Now, is_over: bool
    ) -> Iterator[Element]:
        last = last_of(window)
        is_ready = state.trigger.is_ready(now, last)
        timing = "EARLY"
        if now.watermark > last:
            timing = "LATE" if state.is_past else "ON_TIME"
        if is_ready:
            state.trigger.fire(now, last)
            state.is_closed = state.trigger.is_finished
        must = is_ready and timing == "ON_TIME" and ends(self._trigger)
        if must or (state.has_news and (is_ready or is_over)):
            chosen = {"earliest": min, "latest": max}.get(self._windowing.at)
            time = chosen(state.times) if chosen and state.times else last
            pane = timing, state.panes
            time = min(time, LAST_OF_PANES)
            yield Element(key, tuple(sorted(state.numbers)), time, window, pane)
            state.panes += 1
            state.has_news = False
            state.times.clear()
            if not self._windowing.accumulates:
                state.numbers.clear()
        if timing != "EARLY" and not state.has_news:
            state.is_past = True

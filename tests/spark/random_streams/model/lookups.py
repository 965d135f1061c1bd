"""Side inputs of the model: elements wait until their window of the side input is there.

As ``docs/streaming.md`` says: what an event adds to a side input is visible from the next epoch on.
"""

from collections.abc import Iterator
from typing import Any

from apache_beam.transforms.sideinputs import default_window_mapping_fn

from tests.spark.random_streams.model.groups import Groups
from tests.spark.random_streams.model.times import END, Element, Now, last_of, waiting_hold
from tests.spark.random_streams.steps import SEEN_ASIDE
from tests.spark.random_streams.windowings import Windowing, beams_window_fn


class LookUps:
    """A step with a side input, and the gathering of that.

    Args:
        aside: windowing of the side input.
        lateness: allowed for the step's own input, in milliseconds.
    """

    def __init__(self, aside: Windowing, lateness: int) -> None:
        self._gathering = Groups(aside, aside.trigger, lambda _: "")
        self._map: Any = default_window_mapping_fn(beams_window_fn(aside.window_fn))
        self._lateness = lateness
        self._views: dict[Any, tuple[int, ...]] = {}
        self._watermark = 0  # of the views
        self._waiting: list[Element] = []
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many elements came too late, those of the side input among them."""
        return self._dropped + self._gathering.dropped

    def happens(self, elements: list[Element], now: Now) -> Iterator[Element]:
        """Take what has arrived, and yield what need not wait."""
        timely = [each for each in elements if not self._is_over(each.window, now.before)]
        self._dropped += len(elements) - len(timely)
        self._waiting += timely
        ready = [each for each in self._waiting if self._is_ready(each)]
        self._waiting = [each for each in self._waiting if not self._is_ready(each)]
        for each in ready:
            beside = self._views.get(self._map(each.window), ())
            numbers = (*each.numbers, *(number + SEEN_ASIDE for number in beside))
            yield each._replace(numbers=tuple(sorted(numbers)))

    def hold(self) -> int:
        """Return the event time that the output must not pass."""
        return min(map(waiting_hold, self._waiting), default=END)

    def gather(self, elements: list[Element], now: Now) -> bool:
        """Take elements of the side input; for the next epoch.

        Returns:
            Whether elements that wait have to wait no more.
        """
        for pane in self._gathering.happens(elements, now):
            self._views[pane.window] = pane.numbers
        self._watermark = now.watermark
        return any(map(self._is_ready, self._waiting))

    def _is_ready(self, element: Element) -> bool:
        window = self._map(element.window)
        return window in self._views or self._watermark > last_of(window)

    def _is_over(self, window: Any, watermark: int) -> bool:
        return watermark >= END or watermark > last_of(window) + self._lateness

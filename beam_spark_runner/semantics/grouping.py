"""Grouping one key's values into windows and panes, where windows merge or triggers fire."""

from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import InMemoryUnmergedState, create_trigger_driver
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue


class _StandingClock:
    """Processing time in a batch run: it stands still until every element is there."""

    def time(self) -> float:
        return 0.0


class PaneGrouping:
    """Turns all values of one key into the panes that a batch run fires.

    A batch run has every element before the watermark moves, so that no
    element is late and processing-time triggers fire with the window. Beam's
    own trigger driver says which panes that gives, in which order and with
    which index and timing.

    Threads: one at a time.
    """

    def __init__(self, windowing: Windowing) -> None:
        self._driver = create_trigger_driver(windowing, is_batch=True, clock=_StandingClock())

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """Yield KV(key, values of the pane), windowed.

        Args:
            key: decoded.
            values: of the key, each in the windows that it was assigned to.

        Source: apache_beam.transforms.trigger, TriggerDriver.process_entire_key, which
            knows no processing time.
        """
        state = InMemoryUnmergedState()
        driver = self._driver
        for pane in driver.process_elements(state, values, MIN_TIMESTAMP, MIN_TIMESTAMP):
            yield pane.with_value((key, pane.value))
        while state.timers:
            due, _ = state.get_timers(
                clear=True, watermark=MAX_TIMESTAMP, processing_time=float("inf")
            )
            for window, (name, domain, time, _) in due:
                for pane in driver.process_timer(window, name, domain, time, state):
                    yield pane.with_value((key, pane.value))

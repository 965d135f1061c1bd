"""The timer object that a DoFn gets in the embedded harness."""

import time
from typing import Any

from apache_beam.transforms import userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import Timestamp
from typing_extensions import override

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.semantics.timers import Domain, Timer, TimerId, TimerQueue, due_by

_DOMAINS = {
    TimeDomain.WATERMARK: Domain.EVENT_TIME,
    TimeDomain.REAL_TIME: Domain.PROCESSING_TIME,
}


class KeyTimer(userstate.BaseTimer):  # type: ignore[misc]
    """The timer object of a DoFn, for one family, key and window.

    Args:
        timers: The timers of the key.
        spec: The declaration of the family.
        window: The window.
        time_us: The timestamp of the element.
        payload: The key, and the pane of the element.
        expires_us: When the window expires.
        clock_us: The processing time of the bundle; None: that of the wall clock.
    """

    __slots__ = (
        "_clock_us",
        "_domain",
        "_expires_us",
        "_family",
        "_latest",
        "_payload",
        "_time_us",
        "_timers",
        "_window",
    )

    def __init__(
        self,
        timers: TimerQueue,
        spec: userstate.TimerSpec,
        window: Any,
        time_us: int,
        payload: tuple[Any, Any],
        *,
        expires_us: int,
        clock_us: int | None,
    ) -> None:
        self._timers = timers
        self._family = spec.name
        self._domain = _DOMAINS[spec.time_domain]
        self._window = window
        self._expires_us = expires_us
        self._time_us = time_us
        self._clock_us = clock_us
        self._payload = payload
        self._latest: tuple[Any, str, int] = None, "", 0

    def renew(self, time_us: int, payload: tuple[Any, Any]) -> None:
        """Have it be that of another key, in the same window and bundle.

        Args:
            time_us: The timestamp of the element.
            payload: The key, and the pane of the element.
        """
        self._time_us, self._payload = time_us, payload
        self._latest = None, "", 0

    def move_to(self, time_us: int, pane: Any) -> None:
        """Have it be that of another element of the key and window.

        Args:
            time_us: The element's timestamp.
            pane: The element's pane.
        """
        key, previous = self._payload
        if pane is not previous:
            self._payload = key, pane
        if pane is not previous or self._domain is not Domain.EVENT_TIME:
            # A timer that is set for the same time is another one: in its pane, or its hold.
            self._latest = None, "", 0
        self._time_us = time_us

    @override
    def set(self, timestamp: Any, dynamic_timer_tag: str = "") -> None:
        latest, its_tag, changes = self._latest
        if timestamp is latest and dynamic_timer_tag == its_tag and changes == self._timers.changes:
            return  # most DoFns set the same timer, the end of the window, for each element
        fires_us = whole_milliseconds(Timestamp.of(timestamp).micros)
        domain = self._domain
        if self._clock_us is not None and domain is Domain.PROCESSING_TIME:
            fires_us = due_by(self._clock_us, fires_us, time.time_ns() // 1000)
        timer = Timer(
            TimerId(self._family, dynamic_timer_tag, self._window),
            domain,
            fires_us,
            fires_us if domain is Domain.EVENT_TIME else self._time_us,
            self._payload,
        )
        self._timers.set(timer, expires_us=self._expires_us)
        self._latest = timestamp, dynamic_timer_tag, self._timers.changes

    @override
    def clear(self, dynamic_timer_tag: str = "") -> None:
        self._timers.clear(TimerId(self._family, dynamic_timer_tag, self._window))

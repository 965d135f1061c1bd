"""Steps of the model that keep elements for later, in addition to those with a side input."""

from tests.spark.random_streams.model.times import END, START, Element, Now, last_of, waiting_hold


class Stable:
    """Stable input of a step without state: what comes in an epoch continues in the next one."""

    dropped = 0  # such a step drops nothing

    def __init__(self) -> None:
        self._stored: list[Element] = []
        self._before = self._now = START  # watermarks of the last epoch

    def happens(self, elements: list[Element], now: Now) -> list[Element]:
        """Store what has arrived, and return what was stored."""
        stored, self._stored = self._stored, elements
        self._before, self._now = now.before, now.watermark
        return stored

    @property
    def is_due(self) -> bool:
        """Whether the next epoch continues with what this one has stored."""
        return bool(self._stored) or self._before < self._now

    def hold(self) -> int:
        """Return the event time that the output must not pass."""
        return min([self._before, *map(waiting_hold, self._stored)])


class InOrder:
    """Time-sorted input: elements wait until the watermark passes them.

    Args:
        lateness: allowed, in milliseconds; so long they wait for others.
    """

    def __init__(self, lateness: int) -> None:
        self._lateness = lateness
        self._waiting: list[Element] = []
        self.dropped = 0

    def passed(self, watermark: int) -> int:
        """Return the time up to which elements are in order at a watermark."""
        return watermark if watermark >= END else watermark - self._lateness

    def happens(self, elements: list[Element], now: Now) -> list[Element]:
        """Take what has arrived, and return what need not wait."""
        timely = [
            each for each in elements if each.at >= now.before and not self._is_over(each, now)
        ]
        self.dropped += len(elements) - len(timely)
        self._waiting += timely
        ready = [each for each in self._waiting if each.at <= now.watermark]
        self._waiting = [each for each in self._waiting if each.at > now.watermark]
        return ready

    def hold(self) -> int:
        """Return the event time that the output must not pass."""
        return min(map(waiting_hold, self._waiting), default=END)

    def _is_over(self, element: Element, now: Now) -> bool:
        return now.before >= END or now.before > last_of(element.window) + self._lateness

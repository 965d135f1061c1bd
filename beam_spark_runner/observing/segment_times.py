"""When the segments of a batch pipeline have begun and ended."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTime:
    """A segment that has begun. Times are Unix times in seconds.

    Attributes:
        segment: The number of the segment.
        began_s: When it has begun, for the last time.
        ended_s: When it was accepted. None: it runs.
    """

    segment: int
    began_s: float
    ended_s: float | None = None


class SegmentTimes:
    """Records when segments begin. Threads: one calls ``begin_segment``, any ``times_until``.

    One segment runs at a time, so that the beginning of one is the end of the previous one.

    Example:
        >>> times = SegmentTimes()
        >>> times.begin_segment(0, 10.0)
        >>> times.begin_segment(1, 12.5)
        >>> [(each.segment, each.ended_s) for each in times.times_until(None)]
        [(0, 12.5), (1, None)]
        >>> [(each.segment, each.ended_s) for each in times.times_until(20.0)]
        [(0, 12.5), (1, 20.0)]
    """

    def __init__(self) -> None:
        self._times: tuple[SegmentTime, ...] = ()

    def begin_segment(self, segment: int, now_s: float) -> None:
        """Record that a segment begins; if its rows were lost, not for the first time."""
        others = tuple(times for times in self.times_until(now_s) if times.segment != segment)
        self._times = (*others, SegmentTime(segment=segment, began_s=now_s))

    def times_until(self, end_s: float | None) -> tuple[SegmentTime, ...]:
        """Return the segments that have begun, in the order of their beginnings.

        Args:
            end_s: When the job has ended. None: it runs.
        """
        return tuple(
            replace(times, ended_s=end_s) if times.ended_s is None else times
            for times in self._times
        )

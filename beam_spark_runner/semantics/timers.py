"""The timers of one key: which are set, and which fires next as the key's time advances.

How far time advances is a policy. A batch job has every element of a key before the key's time
advances, then to the end of time: the watermark moves from one event-time timer to the
next; when none is left, the key's clock jumps to the next processing-time timer, so that no job
waits for one; windows expire last. A streaming job advances to the watermark and the clock of
its epoch; timers that are not due remain set. At the end of all input it does as a batch job
does: processing time runs on until no timer of its kind is set, so that a callback that polls for a
result is called until it stops. If the pipeline is drained, each of these timers fires once.
"""

import heapq
from collections.abc import Hashable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from beam_spark_runner.core.time import MAX_US, MIN_US, last_moment, whole_milliseconds


class Domain(Enum):
    """The time domain of a timer."""

    EVENT_TIME = "event time"
    PROCESSING_TIME = "processing time"
    WINDOW_EXPIRATION = "window expiration"  # set by the runner: ``on_window_expiration``

    # That of Enum is Python code, and timers look domains up all the time.
    __hash__ = object.__hash__


class Instant(NamedTuple):
    """A point in event time and in processing time, in microseconds."""

    watermark_us: int  # event time
    clock_us: int  # processing time


def held(to: Instant, hold_us: int) -> Instant:
    """Return the instant to which a key advances whose event time must not pass a hold.

    At the end of all input, timers of processing time fire once event time has come to its end:
    until then, one that sets itself again might wait for an event-time timer to stop it.
    """
    if hold_us >= to.watermark_us:
        return to
    return Instant(hold_us, NEVER_US if to.clock_us >= MAX_US else to.clock_us)


START_OF_TIME = Instant(MIN_US, 0)
END_OF_TIME = Instant(MAX_US, MAX_US)
"""The instant after all input, at which no timer waits for a clock."""
NEVER_US = MIN_US - 1
"""A time in either domain at which nothing is due."""


class TimerId(NamedTuple):
    """The id of a timer. A key has at most one timer of each id."""

    family: str
    tag: str  # dynamic; empty for most
    window: Hashable


class Timer(NamedTuple):
    """A timer that is set. Times are in microseconds, in the domain's own time."""

    id: TimerId
    domain: Domain
    fires_us: int
    hold_us: (
        int  # event time: the output timestamp, which holds the output watermark until it fires
    )
    payload: Any = None  # an object of the harness, returned when the timer fires


_FEW = 64  # entries of a heap that may be stale


_OUR_DAYS_US = 946_684_800_000_000  # the year 2000
_JUST_NOW_US = 1_000_000  # between user code's reading the wall clock and setting the timer


def due_by(clock_us: int, fires_us: int, wall_us: int) -> int:
    """Return when a processing-time timer is due by a clock that is not the wall clock.

    Args:
        clock_us: The time of the clock.
        fires_us: The time that user code has set. A time before the year 2000 was computed from
            the clock, which in a test begins at the Unix epoch. A later time was computed from the
            wall clock, unless the clock is after 2000, too, because a recording is replayed, and
            the wall clock has passed that time: then it was computed from the clock.
        wall_us: The time of the wall clock.
    """
    if fires_us <= _OUR_DAYS_US:
        return fires_us
    if clock_us > _OUR_DAYS_US and fires_us < wall_us - _JUST_NOW_US:
        return fires_us
    return fires_us + clock_us - wall_us


def expiry_us(window_end_us: int, allowed_lateness_us: int) -> int:
    """Return when a window expires: a millisecond after its end and the allowed lateness.

    Args:
        window_end_us: The window's ``max_timestamp``.
        allowed_lateness_us: The allowed lateness of the windowing strategy.

    Returns:
        Event time; at most the end of time, at which all windows have expired.

    Source: Java ``LateDataUtils.garbageCollectionTime``, and the millisecond that
        ``SimpleDoFnRunner`` adds.
    """
    last_us = whole_milliseconds(last_moment(window_end_us))
    return min(last_us + allowed_lateness_us + 1000, MAX_US)


def expiration_timer(
    family: str, window: Any, allowed_lateness_us: int, payload: object
) -> "tuple[Timer, int]":
    """Make the timer that fires when a window of a key expires.

    Args:
        family: The timer family of ``on_window_expiration``. Empty: the DoFn has no such callback;
            the timer only drops the state of the key and window, and holds no watermark.
        window: The window, as an object of Beam's.
        allowed_lateness_us: The allowed lateness of the windowing strategy.
        payload: The payload of the timer.

    Returns:
        The timer, whose output timestamp is the window's end; and the expiry of the window, see
        ``expiry_us``.
    """
    end_us = window.max_timestamp().micros
    expires_us = expiry_us(end_us, allowed_lateness_us)
    id_ = TimerId(family, "", window)
    hold_us = whole_milliseconds(end_us) if family else MAX_US
    return Timer(id_, Domain.WINDOW_EXPIRATION, expires_us, hold_us, payload), expires_us


_Due: TypeAlias = tuple[int, int, TimerId]  # time, sequence number of the call of ``set``, id


class DroppedTimers:
    """Counts the processing-time timers that are dropped because the pipeline is drained.

    Attributes:
        timers: The number of dropped timers.
        keys: The number of keys that have set them.
    """

    __slots__ = ("keys", "timers")

    def __init__(self) -> None:
        self.timers = self.keys = 0


class TimerQueue:
    """The timers of one key. Threads: one.

    Args:
        dropped: If given, each processing-time timer that is still set at the end of all input
            fires once: those that are set from then on are dropped, and counted here.

    Attributes:
        watermark_us: The key's event time; None while its elements arrive.
        changes: A counter. While it is unchanged, to repeat the same call of ``set`` is a no-op.
        dropped: See above.
        set_again: The number of timers that were set, and have fired, while the key's time
            advances to the end of time.

    A timer that is set again replaces the one with its id, which never fires. A timer that is
    cleared before it fires never fires.

    Example:
        >>> queue = TimerQueue()
        >>> due = TimerId("due", "", "window")
        >>> queue.set(Timer(due, Domain.EVENT_TIME, 5, 5), expires_us=100)
        >>> queue.set(Timer(due, Domain.EVENT_TIME, 3, 3), expires_us=100)
        >>> queue.pop(Instant(watermark_us=2, clock_us=0))
        >>> queue.pop(END_OF_TIME).fires_us, queue.pop(END_OF_TIME)
        (3, None)
    """

    __slots__ = (
        *("_due", "_has_dropped", "_last", "_over", "_set", "_set_before", "_settings"),
        *("changes", "dropped", "set_again", "watermark_us"),
    )

    def __init__(self, dropped: DroppedTimers | None = None) -> None:
        self.dropped = dropped
        self.watermark_us: int | None = None
        self.changes = 0
        self.set_again = 0
        self._set: dict[TimerId, tuple[int, Timer]] = {}
        self._due: dict[Domain, list[_Due]] = {domain: [] for domain in Domain}
        self._settings = 0
        self._set_before: int | None = None  # ``_settings`` before the advance to the end of time
        self._over: set[Hashable] = set()  # windows that have expired
        # With ``dropped``: the target of the key's last advance, once its clock has jumped to the
        # end of time.
        self._last: Instant | None = None
        self._has_dropped = False

    def __len__(self) -> int:
        return len(self._set)

    def set(self, timer: Timer, *, expires_us: int) -> None:
        """Set a timer, in place of one that has its id.

        Args:
            timer: The timer. An event-time timer after its window's expiry fires at the expiry, and
                is dropped if event time has reached that already, so that a timer that always
                sets itself again ends with its window. Other timers before the beginning or after
                the end of time fire there. In a drain, a processing-time timer is dropped once the
                clock has jumped to the end of time, unless it replaces one that is set. Any timer
                of a window that has expired is dropped.
            expires_us: The expiry of the timer's window, see ``expiry_us``.
        """
        id_, domain, fires_us, hold_us, _ = timer
        if self._over and id_.window in self._over:  # a window's hash takes a while
            return
        if domain is Domain.EVENT_TIME and fires_us >= expires_us:
            if self.watermark_us is not None and self.watermark_us >= expires_us:
                self.clear(id_)
                return
            if fires_us > expires_us:
                timer = timer._replace(fires_us=expires_us, hold_us=min(hold_us, expires_us))
                fires_us = expires_us
        elif not MIN_US <= fires_us <= MAX_US:
            fires_us = min(max(fires_us, MIN_US), MAX_US)
            timer = timer._replace(fires_us=fires_us, hold_us=max(hold_us, MIN_US))
        entry = self._set.get(id_)
        is_new = entry is None or entry[1].domain is not domain
        if is_new and domain is Domain.PROCESSING_TIME and self._last is not None:
            self.clear(id_)
            self._drop()
            return
        if entry is not None and entry[1].fires_us == fires_us and entry[1].domain is domain:
            self.changes += entry[1].payload is not timer.payload
            self._set[id_] = entry[0], timer  # a fast path: often, each element sets the same one
            return
        self.changes += 1
        self._settings += 1
        self._set[id_] = self._settings, timer
        due = self._due[domain]
        heapq.heappush(due, (fires_us, self._settings, id_))
        if len(due) > 2 * len(self._set) + _FEW:
            due[:] = [item for item in due if self._is_set(item)]
            heapq.heapify(due)

    def _drop(self) -> None:
        assert self.dropped is not None
        self.dropped.timers += 1
        self.dropped.keys += not self._has_dropped
        self._has_dropped = True

    def clear(self, id_: TimerId) -> None:
        """Remove the timer of an id, if it is set."""
        self.changes += 1
        self._set.pop(id_, None)

    def pop(self, to: Instant) -> Timer | None:
        """Advance time to the next timer that is due until ``to``, and remove that timer.

        Event-time timers fire first, in the order of their times; then processing-time timers;
        then windows expire. Timers of the same time fire in the order in which they were set. A
        timer that is set for a past time is due at once. A processing-time timer that is still set
        when its window expires never fires.

        Args:
            to: The target of the advance; the same in all calls until None is returned. In a
                drain, if its clock is at the end of time, the first processing-time timer that
                fires makes this the last advance of the key: a lesser ``to`` does not interrupt
                it, since what is dropped is not stored.

        Returns:
            The timer to fire; None when no timer is due until ``to``.
        """
        to = self._last or to
        if self._set:
            self.changes += 1
            domain = self._next_due(to)
            if domain is not None:
                time_us, setting, id_ = heapq.heappop(self._due[domain])
                if to.watermark_us == MAX_US and domain is not Domain.WINDOW_EXPIRATION:
                    self._count(setting)
                if domain is not Domain.PROCESSING_TIME:
                    self._advance(time_us)
                elif to.clock_us >= MAX_US and self.dropped is not None:
                    self._last = to
                if domain is Domain.WINDOW_EXPIRATION:
                    self._over.add(id_.window)
                return self._set.pop(id_)[1]
            if self._over:
                self._set = {
                    id_: entry for id_, entry in self._set.items() if id_.window not in self._over
                }
        self._advance(to.watermark_us)
        return None

    def _count(self, setting: int) -> None:
        """Count a timer that fires in the advance to the end of time."""
        if self._set_before is None:
            self._set_before = self._settings
        self.set_again += setting > self._set_before

    def would_leave(self, to: Instant) -> bool:
        """Whether due timers remain set if the advance is interrupted here.

        It is false in the last advance of a drained key, which cannot be interrupted; see
        ``pop``.
        """
        return self._last is None and self._next_due(to) is not None

    def _next_due(self, to: Instant) -> Domain | None:
        """Return the domain of the next due timer, which is then the first of the domain's heap."""
        for domain, due in self._due.items():
            until_us = to.clock_us if domain is Domain.PROCESSING_TIME else to.watermark_us
            while due and not self._is_set(due[0]):
                heapq.heappop(due)  # cleared, or set again since
            if due and due[0][0] <= until_us:
                return domain
        return None

    def remaining(self) -> list[Timer]:
        """Return the timers that are set, in the order in which they were set."""
        return [timer for _, timer in sorted(self._set.values(), key=lambda entry: entry[0])]

    def _advance(self, watermark_us: int) -> None:
        now_us = self.watermark_us
        self.watermark_us = watermark_us if now_us is None else max(now_us, watermark_us)

    def restart(self) -> None:
        """Remove all timers and reset time, for the next key."""
        self.changes += 1
        self.watermark_us = None
        self._last, self._has_dropped = None, False
        self._set_before, self.set_again = None, 0
        if self._settings:
            self._settings = 0
            self._over.clear()
            self._set.clear()
            for due in self._due.values():
                due.clear()

    def hold_us(self) -> int | None:
        """Return the least hold of the timers that are set; None: no timer is set."""
        return min((timer.hold_us for _, timer in self._set.values()), default=None)

    def _is_set(self, due: _Due) -> bool:
        entry = self._set.get(due[2])
        return entry is not None and entry[0] == due[1]

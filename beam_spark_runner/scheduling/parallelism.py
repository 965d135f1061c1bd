"""Recommends the number of partitions of a stream, from the load that its epochs show.

The model is that of V. Kalavri et al., "Three steps is all you need" (OSDI 2018): what a partition
achieves while its task runs is measured, and the partitions that the elements need follow from it.
All levels of an epoch have the same number of partitions, so that one number is looked for.

A stream that keeps up shows its load: the time of its tasks. One that does not keep up shows only
that its load is larger: the backlog grows. Its unit is that of the sources (records, bytes), so
that elements cannot be computed from one observation; two observations with different numbers of
partitions suffice. Until there are two, and for sources without a backlog, the number is doubled.
"""

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum

WINDOW_S = 10.0
"""What is observed together. Shorter times would follow single slow epochs."""

MIN_EPOCHS = 5
"""The least number of epochs of a window."""

TARGET = 0.7
"""The share of the time in which tasks should run: the rest is there to catch up."""

_BUSY = 0.85
"""The share above which a stream gets more partitions, though it still keeps up."""

_SETTLING_EPOCHS = 3
"""After a change, so many epochs are not observed: they copy state, and fill caches."""

_LOWER_AFTER_S = 300.0
"""The number falls to the largest one that was right in this time, so that it does not follow
short pauses. Kubernetes' HorizontalPodAutoscaler has the same default."""

_WORTHWHILE = 0.75
"""The number falls only to this share of the present one, or below it: each change copies state."""

_CAUGHT_UP_S = 600.0
"""A backlog that will be gone within this time needs no more partitions."""

_MIN_GAIN = 0.2
"""The least part of the expected gain that more partitions must have brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLoad:
    """The load of one epoch.

    Attributes:
        now_s: When it was committed, monotonic, in seconds.
        partitions: The number of partitions of its exchanges.
        tasks_us: The time of all its tasks together, in microseconds.
        was_cut_off: Whether sources had more elements than there was time for.
        elements_per_s: The elements that sources have emitted in a second, over the last seconds.
            None: not known yet.
        backlog: What sources have yet to read, in their unit. None: not known.
    """

    now_s: float
    partitions: int
    tasks_us: int
    was_cut_off: bool
    elements_per_s: float | None
    backlog: float | None


class Reason(Enum):
    """Why a number of partitions is recommended."""

    MEASURING = "the load is not known yet"
    FITS = "the load fits"
    BUSY = "tasks run nearly all the time"
    SATURATED = "sources have more elements than there is time for"
    CATCHING_UP = "the backlog shrinks"
    NO_GAIN = "more partitions did not raise the rate; slots, one key or a source limit it"
    UNUSED = "tasks run only a small part of the time"


@dataclass(frozen=True, slots=True)
class Advice:
    """The number of partitions that a stream should have, and why."""

    partitions: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What a window shows. ``growth`` is that of the backlog in a second, in its unit."""

    partitions: int
    share: float
    is_saturated: bool
    elements_per_s: float
    growth: float | None
    backlog: float | None


class ParallelismRule:
    """Recommends a number of partitions after each epoch.

    Args:
        least: The least number that is recommended.
        most: The largest one.

    Attributes:
        advice: The newest recommendation; None: no epoch has run.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self.advice: Advice | None = None
        self._partitions = 0
        self._settling = 0  # epochs that are not observed
        self._loads: list[EpochLoad] = []
        self._needed: deque[tuple[float, int]] = deque()  # of windows: end, and the right number
        self._saturated: _Window | None = None  # the last one with another number of partitions
        self._newest: _Window | None = None  # the last one with this number
        self._unit: float | None = None  # of the backlog, for one element
        self._gains = True  # whether more partitions are worth a try

    def note(self, load: EpochLoad) -> None:
        """Take the load of an epoch into account."""
        if load.partitions != self._partitions:
            self._change(load.partitions)
        if self._settling:
            self._settling -= 1
            self._loads = [load]
            return
        self._loads.append(load)
        passed_s = load.now_s - self._loads[0].now_s
        if passed_s < WINDOW_S or len(self._loads) <= MIN_EPOCHS:
            return
        window = _window_of(self._loads, passed_s)
        self._loads = [load]
        if window is not None:
            self.advice = self._advice(window, load.now_s)
            self._newest = window

    def _change(self, partitions: int) -> None:
        newest = self._newest
        self._saturated = newest if newest is not None and newest.is_saturated else None
        self._newest, self._partitions, self._settling = None, partitions, _SETTLING_EPOCHS
        self._loads = []
        self._needed.clear()
        self.advice = Advice(partitions, Reason.MEASURING)

    def _advice(self, window: _Window, now_s: float) -> Advice:
        partitions = window.partitions
        needed, reason = self._needed_in(window)
        needed = max(self._least, min(needed, self._most))
        self._needed.append((now_s, needed))
        # One from before that time stays: windows of long epochs do not end just then.
        while len(self._needed) > 1 and self._needed[1][0] <= now_s - _LOWER_AFTER_S:
            self._needed.popleft()
        if needed > partitions:
            return Advice(needed, reason)
        if partitions > self._most:
            return Advice(self._most, Reason.FITS)
        spanned_s = now_s - self._needed[0][0]
        lower = max(each for _, each in self._needed)
        if spanned_s >= _LOWER_AFTER_S - WINDOW_S and lower <= _WORTHWHILE * partitions:
            return Advice(lower, Reason.UNUSED)
        return Advice(partitions, Reason.FITS if needed < partitions else reason)

    def _needed_in(self, window: _Window) -> tuple[int, Reason]:
        """Return the number of partitions that a window needs."""
        partitions = window.partitions
        if not window.is_saturated:
            self._gains = True
            needed = max(1, math.ceil(window.share * partitions / TARGET))
            if needed <= partitions or window.share > _BUSY:
                return needed, Reason.BUSY if needed > partitions else Reason.FITS
            return partitions, Reason.FITS
        self._compare(window)
        growth, backlog = window.growth, window.backlog
        if growth is not None and backlog is not None and backlog <= -growth * _CAUGHT_UP_S:
            return partitions, Reason.CATCHING_UP
        if not self._gains:
            return partitions, Reason.NO_GAIN
        if self._unit is None or growth is None or not window.elements_per_s:
            return 2 * partitions, Reason.SATURATED
        arriving_per_s = window.elements_per_s + growth / self._unit
        needed = math.ceil(partitions * arriving_per_s / window.elements_per_s / TARGET)
        return max(needed, partitions), Reason.SATURATED

    def _compare(self, window: _Window) -> None:
        """Learn from a window with more partitions than one before, if both were saturated."""
        previous, self._saturated = self._saturated, None
        if previous is None or previous.partitions >= window.partitions:
            return
        gained_per_s = window.elements_per_s - previous.elements_per_s
        expected = window.partitions / previous.partitions - 1
        self._gains = gained_per_s >= _MIN_GAIN * expected * previous.elements_per_s
        if self._gains and previous.growth is not None and window.growth is not None:
            unit = (previous.growth - window.growth) / gained_per_s if gained_per_s else 0
            self._unit = unit if unit > 0 else self._unit


def _window_of(loads: list[EpochLoad], passed_s: float) -> _Window | None:
    """Join the loads of epochs; the first one only begins the time. None: too little is known."""
    last, observed = loads[-1], loads[1:]
    if last.elements_per_s is None:
        return None
    tasks_s = sum(each.tasks_us for each in observed) / 1e6
    growth = None
    if last.backlog is not None and loads[0].backlog is not None:
        growth = (last.backlog - loads[0].backlog) / passed_s
    return _Window(
        partitions=last.partitions,
        share=tasks_s / passed_s / last.partitions,
        is_saturated=2 * sum(each.was_cut_off for each in observed) > len(observed),
        elements_per_s=last.elements_per_s,
        growth=growth,
        backlog=last.backlog,
    )

"""Decides which segment is next, and which run again if materialised rows are lost or rejected.

The rows of a segment may be stored only on executors, and be lost with them; or executors
store rows of two attempts of one task. To run the segment again is not enough: a
random stage makes other rows the second time, so that all readers of the
first ones must run again, too.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import SegmentId

MAX_RUNS = 8
"""The most runs of one segment, for whatever reason it has to run again."""
MAX_CRASHES = 3
"""The most crashes of one segment. Before each, Spark has tried to recover by its own retries."""


@dataclass(frozen=True, slots=True)
class RanSegment:
    """The segment's output was accepted, and its rows are materialised."""

    segment: SegmentId


@dataclass(frozen=True, slots=True)
class Rejected:
    """The segment ran to its end, but its reports were rejected, see ``attempts.judge``."""

    segment: SegmentId
    reason: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The Spark job of the segment failed, for a reason outside the pipeline."""

    segment: SegmentId
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows that ``reader`` needs are lost, or may not be those that were accepted."""

    reader: SegmentId
    writers: frozenset[SegmentId]
    reason: str


Event = RanSegment | Rejected | Crashed | Lost


@dataclass(frozen=True, slots=True)
class Run:
    """Run the segment, after discarding the rows and counts of those in ``forget``."""

    segment: SegmentId
    forget: frozenset[SegmentId] = frozenset()


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the pipeline: the segment has run or crashed as often as allowed."""

    segment: SegmentId
    reason: str


@dataclass(frozen=True, slots=True)
class FinishPlan:
    """Every segment has run."""


Action = Run | GiveUp | FinishPlan


def _none(segment: SegmentId) -> frozenset[SegmentId]:
    return frozenset()


class SegmentOrder:
    """Decides on the next action after each event.

    Args:
        reads: By segment: those whose rows it reads, side inputs included; in the
            order in which segments run.
        done: The segments that have run already.
        missing_outputs: Returns those segments that have run, and whose output a segment would need
            to run again, but nobody has any more.

    Example:
        1 reads 0, 2 reads 0. When 2 finds the rows of 0 lost, 0 runs again, then
        1, which has read the old ones, then 2.
    """

    def __init__(
        self,
        reads: Mapping[SegmentId, Set[SegmentId]],
        done: Iterable[SegmentId] = (),
        missing_outputs: Callable[[SegmentId], Set[SegmentId]] = _none,
    ) -> None:
        self._reads, self._missing_outputs = reads, missing_outputs
        self._done = set(done)
        self._runs = dict.fromkeys(reads, 0)
        self._crashes = dict.fromkeys(reads, 0)
        self._running: SegmentId | None = None
        self._reason = ""

    def start(self) -> Action:
        """Return the first action."""
        return self._next()

    def on(self, event: Event) -> Action:
        """Return what to do after ``event``, which is about the segment that runs."""
        segment = event.reader if isinstance(event, Lost) else event.segment
        if segment != self._running:
            raise InvariantError(f"segment {self._running} runs; unexpected {event}")
        match event:
            case RanSegment():
                self._done.add(segment)
                return self._next()
            case Rejected(reason=reason):
                self._reason = reason
                return self._next()
            case Crashed(reason=reason):
                self._reason = reason
                self._crashes[segment] += 1
                if self._crashes[segment] >= MAX_CRASHES:
                    return GiveUp(segment, f"{reason} ({MAX_CRASHES} times)")
                return self._next()
            case Lost(writers=writers, reason=reason):
                if not writers <= self._done:
                    raise InvariantError(f"lost rows of segments that have not run: {event}")
                self._reason = reason
                stale = self._segments_to_repeat(segment, writers)
                self._done -= stale
                return self._next(stale)

    def _next(self, forget: frozenset[SegmentId] = frozenset()) -> Action:
        self._running = next((id_ for id_ in self._reads if id_ not in self._done), None)
        if self._running is None:
            return FinishPlan()
        if self._runs[self._running] >= MAX_RUNS:
            return GiveUp(self._running, f"{self._reason} ({MAX_RUNS} times)")
        self._runs[self._running] += 1
        return Run(self._running, forget)

    def _segments_to_repeat(
        self, reader: SegmentId, writers: Set[SegmentId]
    ) -> frozenset[SegmentId]:
        """Return the segments that have to run again, apart from the reader, if rows are lost.

        They are the writers, all that have read from them, directly or not, and all whose output is
        needed for that and gone. A random step makes other rows the second time, for all readers.
        """
        stale, previous_size = set(writers), 0
        while previous_size < len(stale):
            previous_size = len(stale)
            for id_ in (reader, *tuple(stale)):
                stale |= self._missing_outputs(id_)
            for id_, read in self._reads.items():  # in order: readers after writers
                if id_ in self._done and read & stale:
                    stale.add(id_)
        return frozenset(stale)

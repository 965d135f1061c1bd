"""What the run of a bounded plan remembers of the Spark jobs whose output was accepted.

By default, nothing outlives the run. With ``--batch_job_recovery``, ``stored_segments`` commits it.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.driving.cluster import JobResult
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.engine.program import OutputPlace, SideInputRows
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.recovery.begun_writes import BegunWrite
from beam_spark_runner.scheduling.attempts import Consumed, Report
from beam_spark_runner.scheduling.segment_output import SegmentOutput
from beam_spark_runner.storage.folder import Folder

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredOutput:
    """The output of a segment that earlier starts have run. ``rows``: None if it has made none."""

    output: SegmentOutput
    rows: OutputRows | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredJobs:
    """The Spark jobs of a segment that were accepted, before all of the segment has run.

    Attributes:
        made: the results of the Spark jobs, in order.
        infos: their metrics.
    """

    made: Sequence[JobResult]
    infos: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What earlier starts have run.

    Attributes:
        done: the metrics of segments that have run.
        outputs: their output, as far as it is still read.
        gathered: side inputs that were gathered.
        written: the results of writes of tables, as JSON.
    """

    done: Mapping[SegmentId, tuple[bytes, ...]] = field(default_factory=dict)
    outputs: Mapping[SegmentId, RestoredOutput] = field(default_factory=dict)
    gathered: Mapping[DestinationId, SideInputRows] = field(default_factory=dict)
    written: Mapping[SegmentId, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInput:
    """What decides how many tasks a Spark job has, and what each of them reads.

    Attributes:
        partitions: the number of tasks, if they read rows through an exchange.
        sources: otherwise: what each task reads, by run. None: that is not known.
        made_by: all attempts whose rows are read, by run.
    """

    partitions: int | None
    sources: Sequence[Consumed] | None
    made_by: Consumed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """Where the tasks of a Spark job store their output.

    Attributes:
        place: the place, with the partitions that have been finished.
        finished: the reports of these partitions.
    """

    place: OutputPlace
    finished: Sequence[Report]


class CommittedByOtherError(Exception):
    """An earlier start, which still runs, has committed in place of this one.

    What it has committed is what ``SegmentStore.restored`` returns from now on.
    """


class WriteStore(Protocol):
    """Remembers the writes of tables, before they begin and after they have ended.

    Attributes:
        start: the number of this start of the driver.
    """

    @property
    def start(self) -> int: ...

    def begun(self, segment: SegmentId) -> BegunWrite | None:
        """Return the write of a segment, if it was begun and has not ended."""
        ...

    def begin(self, segment: SegmentId, make: Callable[[], BegunWrite]) -> BegunWrite | None:
        """Remember that a write begins, before it does. None: nothing is remembered of it.

        Args:
            segment: the segment of the write.
            make: looks at the target, and describes the write; is called if it was not begun.
        """
        ...

    def check_fence(self) -> None:
        """Check that this driver may write.

        Raises:
            FencedError: another driver has taken the job over.
        """
        ...

    def end(self, segment: SegmentId, result: bytes) -> None:
        """Remember the result of a write that has ended, or was skipped."""
        ...


class SegmentStore(Protocol):
    """Remembers Spark jobs whose output was accepted.

    Threads: one at a time.
    """

    @property
    def writes(self) -> WriteStore:
        """Return what is remembered of writes of tables."""
        ...

    @property
    def side_inputs(self) -> Folder | None:
        """The folder for the side inputs that are gathered next. None: that of the job."""
        ...

    def restored(self) -> Restored:
        """Return what earlier starts have run."""
        ...

    def jobs_of(self, segment: SegmentId) -> RestoredJobs | None:
        """Return the jobs of a segment that has not run to its end. None: there are none."""
        ...

    def released(self) -> frozenset[SegmentId]:
        """Return the segments that have run, and whose output is not stored any more."""
        ...

    def next_run(self) -> int:
        """Return the number of the next Spark job."""
        ...

    def place_for(self, run: int, source: JobInput, *, has_rows: bool) -> JobPlace | None:
        """Return where the tasks of a Spark job store their output. None: Spark stores it.

        Args:
            run: the number of the Spark job.
            source: what its tasks read.
            has_rows: whether later Spark jobs read what they emit.
        """
        ...

    def rows_of(self, run: int, attempts: Sequence[int]) -> OutputRows:
        """Return the rows that the tasks of a Spark job have stored.

        Args:
            run: the number of the Spark job.
            attempts: the accepted attempts, by partition.
        """
        ...

    def accept(
        self,
        segment: Segment,
        made: Sequence[JobResult],
        metrics: Callable[[], tuple[bytes, ...]],
        *,
        is_last: bool,
    ) -> None:
        """Remember the accepted Spark jobs of a segment.

        Args:
            segment: the segment.
            made: the results of all of its Spark jobs so far.
            metrics: merges their metrics.
            is_last: whether all of the segment has run.
        """
        ...

    def gather(self, gathered: Mapping[DestinationId, SideInputRows]) -> None:
        """Remember side inputs that were gathered, before tasks read them."""
        ...

    def forget(self, stale: Iterable[SegmentId]) -> None:
        """Forget segments that have to run again, since their rows were lost or rejected."""
        ...

    def outlast(self, work: Callable[[], _Result]) -> _Result:
        """Do work that may be repeated, and repeat it while storage is full or unavailable."""
        ...


class _ForgetfulWrites:
    """See ``WriteStore``."""

    start = 0

    def begun(self, segment: SegmentId) -> BegunWrite | None:
        """See ``WriteStore``."""
        return None

    def begin(self, segment: SegmentId, make: Callable[[], BegunWrite]) -> BegunWrite | None:
        """See ``WriteStore``."""
        return None

    def check_fence(self) -> None:
        """See ``WriteStore``."""

    def end(self, segment: SegmentId, result: bytes) -> None:
        """See ``WriteStore``."""


class ForgetfulStore:
    """See ``SegmentStore``: nothing is left of a driver that has died."""

    side_inputs: Folder | None = None

    def __init__(self) -> None:
        self._runs = itertools.count(1)
        self.writes: WriteStore = _ForgetfulWrites()

    def restored(self) -> Restored:
        """See ``SegmentStore``."""
        return Restored()

    def jobs_of(self, segment: SegmentId) -> RestoredJobs | None:
        """See ``SegmentStore``."""
        return None

    def released(self) -> frozenset[SegmentId]:
        """See ``SegmentStore``."""
        return frozenset()

    def next_run(self) -> int:
        """See ``SegmentStore``."""
        return next(self._runs)

    def place_for(self, run: int, source: JobInput, *, has_rows: bool) -> JobPlace | None:
        """See ``SegmentStore``."""
        return None

    def rows_of(self, run: int, attempts: Sequence[int]) -> OutputRows:
        """See ``SegmentStore``."""
        raise InvariantError(f"the tasks of Spark job {run} have stored no rows")

    def accept(
        self,
        segment: Segment,
        made: Sequence[JobResult],
        metrics: Callable[[], tuple[bytes, ...]],
        *,
        is_last: bool,
    ) -> None:
        """See ``SegmentStore``."""

    def gather(self, gathered: Mapping[DestinationId, SideInputRows]) -> None:
        """See ``SegmentStore``."""

    def forget(self, stale: Iterable[SegmentId]) -> None:
        """See ``SegmentStore``."""

    def outlast(self, work: Callable[[], _Result]) -> _Result:
        """See ``SegmentStore``."""
        return work()

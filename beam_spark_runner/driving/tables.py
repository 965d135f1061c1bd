"""The Spark tables of a pipeline, as the loop over its segments sees them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from beam_spark_runner.core.ids import DestinationId, TransformId
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.recovery.begun_writes import BegunWrite, Outcome, TargetState
from beam_spark_runner.recovery.epoch_writes import EpochWrite


class Begun(NamedTuple):
    """A write that begins now.

    Attributes:
        is_again: whether the same write was begun before.
        write: what a later start knows of it. None: there is none.
        start: the number of this start.
    """

    is_again: bool
    write: BegunWrite | None
    start: int


class TableToWrite(Protocol):
    """A write of a table that has passed its checks."""

    @property
    def step(self) -> str:
        """The name of the step."""
        ...

    @property
    def is_skipped(self) -> bool:
        """Whether nothing is to be done, since the target exists."""
        ...

    def skip(self) -> bytes:
        """Return JSON of the ``SparkWriteResult`` of a write that is skipped."""
        ...

    def continued(self, begun: BegunWrite) -> "TableToWrite":
        """Return the write as it was when an earlier start has begun it."""
        ...

    def outcome(self, begun: BegunWrite) -> Outcome:
        """Look what became of this write, which an earlier start has begun.

        Raises:
            UnknownTableWriteError: the rows may be there, or not.
        """
        ...

    def written(self, begun: BegunWrite) -> bytes:
        """Return what ``run`` would have returned for a write that an earlier start has made."""
        ...

    def run(
        self,
        rows: OutputRows | None,
        dest: DestinationId,
        begin: Callable[[Callable[[int], BegunWrite]], Begun],
    ) -> bytes:
        """Write, and return JSON of a ``SparkWriteResult``.

        Args:
            rows: materialised rows, of all destinations. None: there are none.
            dest: the destination of the table.
            begin: is called once the rows have been checked, before anything is written, with a
                function that describes the write, by the number of this start.

        Raises:
            AmbiguousRowsError: tasks have read rows of other attempts; nothing was written.
            Exception: what the cluster raises.
        """
        ...

    def may_run_again(self) -> bool:
        """Whether a failed write has left no rows."""
        ...

    def reason_for(self, error: BaseException) -> str:
        """Say why the write has failed."""
        ...


class TableToAppend(Protocol):
    """A table that gets the rows of epochs, and has passed its checks."""

    def state(self) -> TargetState:
        """Return the table as it is now: its kind, and the snapshot of one of Iceberg.

        Raises:
            Exception: what the cluster raises if the table cannot be looked at.
        """
        ...

    def is_written(self, write: EpochWrite) -> bool:
        """Whether the table has the rows of an epoch, or skips them by itself.

        Raises:
            UnknownEpochWriteError: it does not say so.
            Exception: what the cluster raises if the table cannot be looked at.
        """
        ...

    def append(self, write: EpochWrite, places: ShardLocations) -> None:
        """Write the rows of an epoch, in one commit of the table.

        Args:
            write: the rows.
            places: where their files are.

        Raises:
            Exception: what the cluster raises.
        """
        ...

    def reason_for(self, error: BaseException) -> str:
        """Say why a write has failed."""
        ...

    def close(self) -> None:
        """Remove what has helped to write the table: the run has ended, or has failed."""
        ...


class Tables(Protocol):
    """The tables that a pipeline reads and writes, by step.

    Attributes:
        begun: the writes that this program has tried.
        results: the results of writes that were done or skipped, as JSON.
    """

    begun: set[TransformId]
    results: dict[TransformId, bytes]

    def to_write(self, step: TransformId) -> TableToWrite:
        """Return the write of a step."""
        ...

    def to_append(self, step: str) -> TableToAppend:
        """Return the table that a step of a streaming pipeline writes, by the step's name."""
        ...

    def source(self, segment: Segment, rows: OutputRows | None) -> OutputRows | None:
        """Return the rows that a segment reads, with those of tables.

        Args:
            segment: the segment.
            rows: the rows that are not of tables; None: there are none.
        """
        ...


def results_for(tables: Tables, segment: Segment) -> Mapping[DestinationId, bytes]:
    """Return the elements that a segment gets from writes."""
    return {dest: tables.results[step] for dest, step in segment.results.items()}


class NoTables:
    """The tables of a pipeline that has none; see ``Tables``."""

    def __init__(self) -> None:
        self.begun: set[TransformId] = set()
        self.results: dict[TransformId, bytes] = {}

    def to_write(self, step: TransformId) -> TableToWrite:
        """See ``Tables``."""
        raise KeyError(step)

    def to_append(self, step: str) -> TableToAppend:
        """See ``Tables``."""
        raise KeyError(step)

    def source(self, segment: Segment, rows: OutputRows | None) -> OutputRows | None:
        """See ``Tables``."""
        return rows

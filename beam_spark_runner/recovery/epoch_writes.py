"""The rows that an epoch has committed for tables, until a later manifest notes their writes.

An epoch commits the files with the rows of its accepted tasks, and the driver writes each table
afterwards, in one commit of the table. This commit carries the name of the chain of epochs and the
number of the epoch, so that a driver that starts in between finds out whether the rows are there.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, InvariantError, RunnerError
from beam_spark_runner.recovery.begun_writes import (
    DELTA,
    ICEBERG,
    JDBC,
    BegunWrite,
    Found,
    Outcome,
    TargetState,
    outcome,
)

KINDS = (DELTA, ICEBERG, JDBC)
"""Tables whose commits carry the epoch that has made them."""


class EpochWrite(NamedTuple):
    """The rows of one epoch for one table.

    Attributes:
        step: The name of the step that writes the table.
        writer: Tells this step of this chain of epochs from all others that write the table.
        epoch: The number of the epoch.
        files: The names of the files with the rows.
        rows: How many rows they have.
        kind: One of ``KINDS``.
        before: The snapshot of the table before the epoch was committed; empty: there was none, or
            the table needs none to answer.
    """

    step: str
    writer: str
    epoch: int
    files: tuple[str, ...]
    rows: int
    kind: str
    before: str = ""

    @property
    def mark(self) -> str:
        """What the snapshot of Iceberg has that this write makes."""
        return f"{self.writer}-{self.epoch}"

    def begun(self) -> BegunWrite:
        """Return the write as one that an earlier start may have begun."""
        before = TargetState(exists=None, kind=self.kind, version=self.before)
        return BegunWrite(fence=0, mark=self.mark, schema="", rows=self.rows, before=before)


class RowsOfTask(NamedTuple):
    """A file with rows that a task has made in an epoch.

    Attributes:
        step: The name of the step that writes the table.
        file: The name of the file.
        rows: How many rows it has.
    """

    step: str
    file: str
    rows: int


def writer_name(chain: str, step: str) -> str:
    """Return the name by which a table knows a step.

    Args:
        chain: The name of the chain of epochs, see ``Manifest``.
        step: The name of the step.
    """
    return f"beam-spark-{chain}-{hashlib.blake2b(step.encode(), digest_size=6).hexdigest()}"


def unwritten_after(
    last: Sequence[EpochWrite],
    written: Iterable[EpochWrite],
    chain: str,
    epoch: int,
    made: Iterable[RowsOfTask],
    tables: Mapping[str, TargetState],
) -> tuple[EpochWrite, ...]:
    """Return what is to be written once an epoch is committed, in the order of the epochs.

    Args:
        last: What the previous manifest has.
        written: Those writes that have ended since.
        chain: The name of the chain of epochs.
        epoch: The number of the epoch.
        made: The files of its accepted tasks.
        tables: By the name of a step: its table before the epoch is committed.
    """
    done = set(written)
    files: dict[str, list[RowsOfTask]] = {}
    for each in made:
        files.setdefault(each.step, []).append(each)
    new = (
        EpochWrite(
            step=step,
            writer=writer_name(chain, step),
            epoch=epoch,
            files=tuple(sorted(each.file for each in of_step)),
            rows=sum(each.rows for each in of_step),
            kind=_known_kind(tables[step]),
            before=tables[step].version if tables[step].kind == ICEBERG else "",
        )
        for step, of_step in sorted(files.items())
    )
    return (*(each for each in last if each not in done), *new)


def _known_kind(table: TargetState) -> str:
    if table.kind not in KINDS:
        raise InvariantError(f"a stream writes a table of the kind {table.kind!r}")
    return table.kind


def outcome_of(write: EpochWrite, found: Found) -> Outcome:
    """Return what became of a write that an earlier start may have made.

    A table of Delta has an answer for each write: it skips one whose epoch it has. A database is
    asked for the epoch itself.

    Args:
        write: The write.
        found: The table as it is now.
    """
    return outcome("append", write.begun(), found)


SNAPSHOTS_WERE_REMOVED = "the snapshots that would say so were removed from the table"


def changed_kind(before: str, now: str) -> str:
    """Return the reason why a table that has changed its format does not say what it has.

    Args:
        before: One of ``KINDS``.
        now: Another one.
    """
    return f"it was a table of {before}, and is one of {now} now"


class TableDatabaseError(CheckpointStorageError):
    """The database of a table that a streaming pipeline writes does not answer, or is too busy."""

    @override
    def __str__(self) -> str:
        return f"{self.place} cannot be written now: {self.problem}"


class UnknownEpochWriteError(RunnerError):
    """A driver has died after an epoch, and the table does not say whether it has the rows.

    It was asked: a table that cannot be reached raises other errors.

    Args:
        step: The name of the step.
        target: The table, in words.
        rows: How many rows the epoch has for it.
        epoch: The number of the epoch.
        mark: What the snapshot with these rows has.
        reason: Why the table does not say so, as a clause.
    """

    def __init__(
        self, step: str, target: str, rows: int, epoch: int, mark: str, reason: str
    ) -> None:
        super().__init__(step, target, rows, epoch, mark, reason)
        self.step, self.target, self.rows, self.epoch = step, target, rows, epoch
        self.mark, self.reason = mark, reason

    @override
    def __str__(self) -> str:
        return (
            f"{self.step}: it is not known whether {self.target} has the {self.rows} rows of epoch "
            f"{self.epoch}. A driver has died before it noted their write, and {self.reason}. No "
            "later start can continue. Look for the rows in the table (a snapshot with them has "
            f"beam-spark-runner.write = {self.mark} in its summary), and begin again, with an "
            "empty --checkpoint_dir"
        )

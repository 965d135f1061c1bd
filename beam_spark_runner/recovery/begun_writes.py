"""Decides what becomes of the write of a Spark table that an earlier start has begun.

A driver may have died before the write, in the middle of it, or after it. Spark keeps nothing that
says which: only the table itself does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from typing_extensions import override

from beam_spark_runner.core.errors import RunnerError

DELTA = "delta"
"""Skips a write that has the ``txnAppId`` and the ``txnVersion`` of one that it has committed."""
ICEBERG = "iceberg"
"""Keeps properties of snapshots: by that of a write, it can be asked whether it has committed."""
JDBC = "jdbc"
"""A table of a database. Only streams note in it what they have written."""
FILES = "files"
"""Files whose names are new in each write, so that their listing tells whether one was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What is there of the target of a write, at one moment.

    Attributes:
        exists: Whether it exists. None: that is not known.
        kind: ``DELTA``, ``ICEBERG``, ``JDBC`` or ``FILES``; another text: a format of which nothing
            is known.
        files: How many files it has, if it has a digest.
        digest: Of the names of its files. Empty: they are not known.
        version: The number of the version, or of the snapshot, if it has any.
        folder: The folder in which Spark would create the table. Empty: there is none, or something
            else is in it.
    """

    exists: bool | None
    kind: str = ""
    files: int = 0
    digest: str = ""
    version: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunWrite:
    """A write that a start has begun.

    Attributes:
        fence: The number of the start.
        mark: Random; tells the write from all others.
        schema: The schema of the rows as the target has them, as Spark's JSON.
        rows: How many rows are written.
        before: The target before the write.
        session: The id of the session of Spark Connect that writes. Empty: it is a classic one.
    """

    fence: int
    mark: str
    schema: str
    rows: int
    before: TargetState
    session: str = ""


class Found(NamedTuple):
    """What a later start finds of the target of a write that was begun.

    Attributes:
        now: The target as it is now.
        has_mark: Whether a snapshot of Iceberg has the mark of the write. None: that is not known,
            as for all other kinds.
    """

    now: TargetState
    has_mark: bool | None = None


class Outcome(Enum):
    """What became of a write, as far as it matters."""

    WRITE_AGAIN = "none of its rows are there, or they are replaced or counted once"
    IS_WRITTEN = "all of its rows are there"
    UNKNOWN = "its rows may be there, or not"


def outcome(mode: str, begun: BegunWrite, found: Found) -> Outcome:
    """Return what became of a write that was begun, and whose end nobody knows.

    Args:
        mode: One of ``table_steps.MODES``. With ``error`` and ``ignore``, a write begins only if
            nothing is there.
        begun: The write.
        found: The target as it is now.
    """
    before, now = begun.before, found.now
    if found.has_mark:
        return Outcome.IS_WRITTEN
    if mode != "append" or now.exists is False:
        return Outcome.WRITE_AGAIN  # it replaces whatever the first one has left
    if now.kind != before.kind:
        return Outcome.UNKNOWN
    if now.kind == DELTA or (now.kind == ICEBERG and found.has_mark is False):
        return Outcome.WRITE_AGAIN
    if now.kind == FILES and now.digest and now.digest == before.digest:
        return Outcome.WRITE_AGAIN
    return Outcome.UNKNOWN


def has_mark(
    marks: Mapping[str, str | None], parents: Mapping[str, str | None], begun: BegunWrite
) -> bool | None:
    """Return whether a write is among the snapshots of a table. None: old ones were removed.

    Args:
        marks: The marks of snapshots, by their number.
        parents: The numbers of their parents. None: it is the first one of the table.
        begun: The write.
    """
    if begun.mark in marks.values():
        return True
    before = begun.before.version
    is_complete = before in marks if before else not marks or None in parents.values()
    return False if is_complete else None


class UnknownTableWriteError(RunnerError):
    """A driver has died while it appended to a table: the rows may be there, or not.

    Args:
        step: The name of the step.
        target: The target, in words.
        rows: How many rows it appends.
        start: The number of the start that has died.
        advice: Where to look, and what to do.
    """

    def __init__(self, step: str, target: str, rows: int, start: int, advice: str) -> None:
        super().__init__(step, target, rows, start, advice)
        self.step, self.target, self.rows, self.start = step, target, rows, start
        self.advice = advice

    @override
    def __str__(self) -> str:
        return (
            f"{self.step} appends {self.rows} rows to {self.target}. Start {self.start} of this "
            "job has begun the write and has died, so that the rows may be there or not, and a "
            f"second write might double them. {self.advice}"
        )


def advice_for(before: TargetState, now: TargetState) -> str:
    """Say where to look after an outcome that is unknown.

    Args:
        before: The target before the write.
        now: The target as it is now.
    """
    begin_again = (
        "a later start cannot continue: remove the rows, and begin again, with an empty "
        "--checkpoint_dir, or as another job of a job server"
    )
    if before.digest and now.digest and before.kind == now.kind == FILES:
        return (
            f"Look at its files: there were {before.files} before the write, and there are "
            f"{now.files} now. If you remove those that the write has made, the next start of the "
            "program, or of the job server, continues. If others have written, too, "
            f"{begin_again}"
        )
    return f"Look whether it has them. In either case, {begin_again}"

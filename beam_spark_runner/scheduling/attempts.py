"""Decides whether all tasks of a segment have read the same attempts.

After the loss of an executor, Spark runs single tasks again, but tasks that have
read rows of the earlier attempt do not run again. If a stage is random, or depends on
the clock or the order of its input, elements are then lost or duplicated. Each
attempt therefore chooses a number and sends it with its rows; each task
reports which numbers it has read.

This is also so for rows that a Spark job has materialised for later ones: executors may
store rows of two attempts of one task, and each reader gets those of either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from beam_spark_runner.core.raised import Raised
from beam_spark_runner.scheduling.task_work import TaskWork


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception of user code in the last attempt of a task."""

    step: str
    cause: str
    traceback_text: str
    kind: str
    raised: Raised | None = None


IN_THIS_JOB = 0
"""The run of rows that come from tasks of the same Spark job; runs of Spark jobs count from 1."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """A fingerprint of a set of task attempts."""

    count: int
    sum: int  # of the attempts' ids, modulo 2^64

    @staticmethod
    def of(attempts: Iterable[int]) -> "Attempts":
        """Return the fingerprint of attempts, given by their ids."""
        numbers = list(attempts)
        return Attempts(len(numbers), sum(numbers) % (1 << 64))

    def __add__(self, others: "Attempts") -> "Attempts":
        return Attempts(self.count + others.count, (self.sum + others.sum) % (1 << 64))


Consumed = Mapping[int, Attempts]
"""By run: the attempts whose rows were read."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """The residuals of a splittable DoFn, in summary."""

    count: int
    hold_us: int  # their least watermark hold, event time
    size: float | None = None  # their total size, from the restriction provider; None: not known


class KeyedReport(NamedTuple):
    """A streaming task's report of the keys of a stage in the state store, after the epoch.

    Attributes:
        store: The store number of the stage.
        epoch: The epoch of the newest keyed delta of this partition; 0: there is none.
        attempt: The attempt that wrote it.
        older: Epoch and attempt of the older deltas of the chain, oldest first.
        needs_parts: Whether the parts of the previous head are needed, see ``recovery.heads``.
    """

    store: int
    epoch: int
    attempt: int
    older: tuple[tuple[int, int], ...] = ()
    needs_parts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """A streaming task's report of its shard, after the epoch.

    Attributes:
        epoch: The epoch of the newest delta; 0: there is no delta.
        attempt: The attempt that wrote the newest delta.
        next_event_us: The event time at which the next timer is due; None: there is no such timer.
        next_clock_us: The processing time at which the next timer is due; None likewise.
        was_cut_off: Whether sources had more than the budget of the epoch allowed.
        awaited_us: The side inputs that elements wait for, by destination that gathers one: the
            earliest end of its windows that are not ready for them. Empty: no elements wait.
        was_interrupted: Whether timers that are due have not fired.
        awaits_commit: Whether stable input is stored, to be processed after the commit.
        older: Epoch and attempt of the older deltas of the chain, oldest first.
        was_rebuilt: Whether the shard was rebuilt, for lack of a local copy that could be used.
        stored_bytes: The size of the local copy's pages that are in use.
        stored_records: The number of its records: several of a key, and some of no key.
        keyed: Of each stage of the level whose keys are in the state store.
        needs: The descriptions of the callbacks and variables with which records continue that were
            left for the next epoch, by stage.
        group_bytes: The size of the largest group of keys that was read there as a whole.
    """

    epoch: int
    attempt: int
    next_event_us: int | None
    next_clock_us: int | None
    was_cut_off: bool = False
    awaited_us: Mapping[int, int] = field(default_factory=dict)
    was_interrupted: bool = False
    awaits_commit: bool = False
    older: tuple[tuple[int, int], ...] = ()
    was_rebuilt: bool = False
    stored_bytes: int = 0
    stored_records: int = 0
    keyed: tuple[KeyedReport, ...] = ()
    needs: Mapping[int, frozenset[str]] = field(default_factory=dict)
    group_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Elements that wait for side inputs, described by the earliest of them."""

    hold_us: int  # the earliest element's timestamp
    window: bytes  # its window, encoded
    views: tuple[int, ...]  # destinations of side inputs that are not ready for its window


@dataclass(frozen=True, slots=True)
class StageReport:
    """One task's report of a stage, after the epoch."""

    output_us: int  # output watermark
    hold_us: int | None = None  # the least watermark hold in the shard, event time
    waiting: Waiting | None = None
    left: Residuals | None = None  # records of a declarative step, for the next epoch


@dataclass(frozen=True, slots=True)
class ViewReport:
    """New content of a side input in one window: one task's part of it, or all (no ``part``)."""

    dest: int
    window: bytes
    file: str
    expires_us: int  # event time
    part: bytes = b""


@dataclass(frozen=True, slots=True)
class TableRowsReport:
    """A file of one task with rows for a table, which is written once the epoch is committed."""

    dest: int
    file: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one task attempt (``reports.proto``, TaskReport)."""

    level: int
    partition: int
    attempt: int
    consumed: Consumed = field(default_factory=dict)
    monitoring_infos: tuple[bytes, ...] = ()
    failure: Failure | None = None
    is_poisoned: bool = False
    emitted_bytes: int = 0
    residuals: Mapping[int, Residuals] = field(default_factory=dict)  # by destination, as rows
    watermarks_us: Mapping[int, int] = field(default_factory=dict)
    """By destination: the watermark of this task's elements for it. A missing destination has all
    elements from this task."""
    worker: str = ""  # id of the process, if it has sent anything over the backchannel
    messages_sent: int = 0  # over the backchannel, up to this report
    has_callbacks: bool = False  # the worker has callbacks to run when the output is accepted
    shard: ShardReport | None = None  # of a streaming level, if the task has a shard
    deferred: Mapping[str, Residuals] = field(default_factory=dict)  # by step, in the shard
    views: tuple[ViewReport, ...] = ()  # new content of side inputs
    table_rows: tuple[TableRowsReport, ...] = ()  # of an epoch
    looks_up_us: Mapping[int, int] = field(default_factory=dict)
    """By destination of a side input: the event time of the earliest element for which the task
    may still look up the side input."""
    finished: frozenset[int] = frozenset()
    """Destinations that get no more elements in this partition, and whose stages have nothing in
    the shard."""
    stages: Mapping[int, StageReport] = field(default_factory=dict)
    """Of a streaming level: by the destination that each stage reads."""
    spent_us: int = 0  # of a streaming level: time since the task had received its marks
    returned_rows: bytes | None = None
    """The attempt's rows for side inputs, or all of the only task's, if there are few
    (``task.returned_rows``)."""
    work: TaskWork | None = None  # for people
    unread_rows: int = 0  # that the only task of a segment has left to the next Spark job


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every task read one attempt of each task upstream: outputs and metrics count."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Run the segment again: tasks read other attempts than reported, or reports are missing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Materialised rows that were read are not those of the attempts that were accepted.

    The next reader may get the same mixture, so that the rows must be materialised again.
    """

    runs: frozenset[int]
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """User code failed; the other reports' metrics are counted."""

    failure: Failure


Verdict = Accepted | Rejected | Ambiguous | Failed


def judge(
    reports: Sequence[Report],
    partitions: Mapping[int, int],
    *,
    first: int = 0,
    materialised: Consumed | None = None,
) -> Verdict:
    """Decide about a Spark job. Total: every set of reports has a verdict.

    Attempts are compared before failures are considered, because user code may have failed on
    the rows of different attempts. The report of a failed task has the attempts that it read.

    Args:
        reports: The reports that the Spark job returned with its rows.
        partitions: The number of tasks by level, for levels that begin with an exchange. The
            first level may be missing, because Spark decides how many tasks read its input.
        first: The first level of the Spark job.
        materialised: The attempts whose rows earlier Spark jobs materialised for that level.

    Example:
        Level 1 has tasks a, b; level 2 has c, d. Both c and d must have read
        {a, b}. If c read {a, b} and d read {a', b}, the segment is rejected.
    """
    by_level: dict[int, list[Report]] = {}
    for report in reports:
        by_level.setdefault(report.level, []).append(report)
    for level, level_reports in sorted(by_level.items()):
        if len({report.partition for report in level_reports}) < len(level_reports):
            # Rows of both are stored, and would be read as those of two tasks.
            return Rejected(f"two attempts at one task of level {level} reported")
    runs = ambiguous_runs(
        [report.consumed for report in by_level.get(first, ())],
        materialised or {},
        is_exchanged=first in partitions,
    )
    if runs:
        return Ambiguous(
            runs,
            f"level {first} read other attempts' rows than the materialised ones",
        )
    for level in sorted(by_level.keys() - {first}):
        upstream = by_level.get(level - 1)
        # An empty table has no tasks.
        upstream_attempts = (
            {IN_THIS_JOB: Attempts.of(level_reports.attempt for level_reports in upstream)}
            if upstream
            else {}
        )
        for report in by_level[level]:
            if report.consumed != upstream_attempts:
                return Rejected(
                    f"level {level}, partition {report.partition} read other attempts of "
                    f"level {level - 1} than those that reported"
                )
    for report in reports:
        if report.failure is not None:
            return Failed(report.failure)
    for level, count in sorted(partitions.items()):
        present = sorted(report.partition for report in by_level.get(level, ()))
        if present != list(range(count)):
            return Rejected(f"level {level} reported from partitions {present} of {count}")
    return Accepted()


def ambiguous_runs(
    consumed: Sequence[Consumed], materialised: Consumed, *, is_exchanged: bool
) -> frozenset[int]:
    """Return the runs of which tasks have read rows of attempts that were not accepted.

    Args:
        consumed: For each task that has read rows: the attempts that it read, by run.
        materialised: The attempts whose rows were accepted, by run.
        is_exchanged: Whether each task reads rows of all attempts, after an exchange; else the
            rows of each attempt are read by one task.

    Example:
        Run 3 has materialised rows of {a, b}. Without an exchange, readers of {a} and {b} are
        right, and of {a} and {b'} wrong. After an exchange, both must have read {a, b}. A run
        without tasks, of an empty table, has no marks that could be read.
    """
    no_attempts = Attempts(0, 0)
    if not is_exchanged:
        total: dict[int, Attempts] = {}
        for attempts_by_run in consumed:
            for run, attempts in attempts_by_run.items():
                total[run] = total.get(run, no_attempts) + attempts
        consumed = [total]
    return frozenset(
        run
        for attempts_by_run in consumed
        for run in attempts_by_run.keys() | materialised.keys()
        if attempts_by_run.get(run, no_attempts) != materialised.get(run, no_attempts)
    )


def times_of_levels(reports: Iterable[Report]) -> dict[int, int]:
    """Return the time of the longest task of each level, in microseconds."""
    times_us: dict[int, int] = {}
    for report in reports:
        times_us[report.level] = max(times_us.get(report.level, 0), report.spent_us)
    return times_us

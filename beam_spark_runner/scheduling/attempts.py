"""Decides whether all tasks of a segment have read the same attempts.

Spark re-runs single tasks after a lost executor, and readers of the earlier
attempt keep what they have read; where a stage is random, or depends on the
clock or the order of its input, elements are then lost or doubled. Each
attempt therefore draws a number and sends it along with its rows; each task
reports which numbers it has read.

Rows that a Spark job has materialised for later ones are no exception: two executors may
keep what two attempts at one task have made, and each reader gets either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """User code that raised, for the last time."""

    step: str
    cause: str
    traceback_text: str
    kind: str


IN_THIS_JOB = 0
"""Rows that a task reads from another one of the same Spark job; other runs count from 1."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """Some task attempts, in a form that is small and can be compared."""

    count: int
    sum: int  # of their numbers, modulo 2^64

    @staticmethod
    def of(attempts: Iterable[int]) -> "Attempts":
        """Return the form of these."""
        numbers = list(attempts)
        return Attempts(len(numbers), sum(numbers) % (1 << 64))

    def __add__(self, others: "Attempts") -> "Attempts":
        return Attempts(self.count + others.count, (self.sum + others.sum) % (1 << 64))


Consumed = Mapping[int, Attempts]
"""Run -> the attempts whose rows were read."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """What a splittable DoFn has left undone."""

    count: int
    hold_us: int  # event time that waits for it
    size: float | None = None  # in all, as restriction providers say; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What a streaming task says of its shard, as it has left it.

    Attributes:
        epoch: of the newest delta; 0: there is none.
        attempt: that wrote it.
        next_event_us: when its next timer is due, event time; None: it has no timer.
        next_clock_us: the same in processing time.
        was_cut_off: sources had more than the budget of the epoch allowed.
        awaits_views: elements wait for side inputs.
        was_interrupted: timers that are due have not fired.
        awaits_commit: stable input is stored, for the epoch after this one.
        older: epoch and attempt of those before it that the shard is rebuilt from, oldest first.
        was_rebuilt: it was, since no local copy of it was where the task ran.
        stored_bytes: size of the local copy: pages that are in use.
    """

    epoch: int
    attempt: int
    next_event_us: int | None
    next_clock_us: int | None
    was_cut_off: bool = False
    awaits_views: bool = False
    was_interrupted: bool = False
    awaits_commit: bool = False
    older: tuple[tuple[int, int], ...] = ()
    was_rebuilt: bool = False
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Elements that wait for side inputs, in the window in which the earliest of them is."""

    hold_us: int  # the timestamp of that one
    window: bytes
    views: tuple[int, ...]  # destinations that gather side inputs which are not ready for it


@dataclass(frozen=True, slots=True)
class StageReport:
    """How an epoch has left a stage in one task."""

    output_us: int  # watermark of what it sends on
    hold_us: int | None = None  # the least event time that is held by what it stores
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True)
class ViewReport:
    """The new content of a side input in one window; ``part`` is empty if it is all of it."""

    dest: int
    window: bytes
    file: str
    expires_us: int  # event time
    part: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one task attempt said of itself (``reports.proto``, TaskReport)."""

    level: int
    partition: int
    attempt: int
    consumed: Consumed = field(default_factory=dict)
    monitoring_infos: tuple[bytes, ...] = ()
    failure: Failure | None = None
    poisoned: bool = False
    emitted_bytes: int = 0
    residuals: Mapping[int, Residuals] = field(default_factory=dict)  # by destination: what is left
    watermarks_us: Mapping[int, int] = field(default_factory=dict)
    """By destination: up to which event time it has all elements from this task. A destination
    that is missing has all of them."""
    worker: str = ""  # the process, if it has sent anything over the backchannel
    messages_sent: int = 0  # by then, over the backchannel
    finalizes: bool = False  # it holds callbacks for when the attempt's output is accepted
    shard: ShardReport | None = None  # of a streaming level, if the task has one
    deferred: Mapping[str, Residuals] = field(default_factory=dict)  # by step: in the shard
    views: tuple[ViewReport, ...] = ()  # new content of side inputs
    looks_up_us: Mapping[int, int] = field(default_factory=dict)
    """By destination that gathers a side input: the event time of the earliest element for which
    the task may still look it up."""
    finished: frozenset[int] = frozenset()
    """Destinations to which nothing comes in this partition any more, and whose stages have nothing
    left in the shard."""
    stages: Mapping[int, StageReport] = field(default_factory=dict)
    """Of a streaming level: by the destination that each stage reads."""
    spent_us: int = 0  # of a streaming level: since the task had its marks


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every task read one attempt of each task before it: outputs and metrics count."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Run the segment again: its tasks saw different attempts of one task."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Materialised rows were not those of the attempts that were accepted when they were made.

    Who reads them next may meet the same mixture, so that they must be made again.
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

    Whether the tasks have read the same comes first: user code may have failed because they
    have not. A report says what its task has read even if the task has failed.

    Args:
        reports: those that came out with the job's rows.
        partitions: level -> number of tasks, for levels that begin with an exchange. The
            first level may lack: Spark decides how many tasks read what lies there.
        first: level of the job.
        materialised: whose rows earlier Spark jobs have materialised for the first level.

    Example:
        Level 1 has tasks a, b; level 2 has c, d. Both c and d must have read
        {a, b}. If c read {a, b} and d read {a', b}, the segment is rejected.
    """
    by_level: dict[int, list[Report]] = {}
    for report in reports:
        by_level.setdefault(report.level, []).append(report)
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
        before = by_level.get(level - 1)
        # An empty table has no tasks.
        sent = {IN_THIS_JOB: Attempts.of(each.attempt for each in before)} if before else {}
        for report in by_level[level]:
            if report.consumed != sent:
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
    """Return the runs whose rows were read of other attempts than materialised them.

    Args:
        consumed: of each task that has read them.
        materialised: whose rows there are.
        is_exchanged: whether each task has got rows of all attempts; else each attempt's rows
            were read by one task.

    Example:
        Run 3 has materialised rows of {a, b}. In place, readers of {a} and {b} are right, and of
        {a} and {b'} wrong. After an exchange, both must have read {a, b}. A run without tasks, of
        an empty table, has no marks that anybody could read.
    """
    none = Attempts(0, 0)
    if not is_exchanged:
        total: dict[int, Attempts] = {}
        for each in consumed:
            for run, attempts in each.items():
                total[run] = total.get(run, none) + attempts
        consumed = [total]
    return frozenset(
        run
        for each in consumed
        for run in each.keys() | materialised.keys()
        if each.get(run, none) != materialised.get(run, none)
    )

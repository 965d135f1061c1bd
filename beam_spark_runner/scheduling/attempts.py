"""Whether a segment's tasks all worked on the same data.

Spark re-runs single tasks after a lost executor, and readers of the earlier
attempt keep what they have read; where a stage is random, or depends on the
clock or the order of its input, elements are then lost or doubled. Each
attempt therefore draws a number and sends it along with its rows; each task
reports which numbers it has read.
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


@dataclass(frozen=True, slots=True)
class Residuals:
    """What a splittable DoFn has left undone."""

    count: int
    hold_us: int  # event time that waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one task attempt said of itself (``reports.proto``, TaskReport)."""

    level: int
    partition: int
    attempt: int
    consumed_count: int
    consumed_sum: int  # modulo 2^64
    monitoring_infos: tuple[bytes, ...] = ()
    failure: Failure | None = None
    poisoned: bool = False
    emitted_bytes: int = 0
    residuals: Mapping[int, Residuals] = field(default_factory=dict)  # by destination: what is left
    worker: str = ""  # the process, if it told the driver anything beside the rows
    told: int = 0  # how much it had told by then
    finalizes: bool = False  # it holds callbacks for when the attempt's output is accepted


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every task read one attempt of each task before it: outputs and metrics count."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Run the segment again: its tasks saw different attempts of one task."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """User code failed; the other reports' metrics are kept."""

    failure: Failure


Verdict = Accepted | Rejected | Failed


def judge(reports: Sequence[Report], partitions: Mapping[int, int]) -> Verdict:
    """Decide about a segment. Total: every set of reports has a verdict.

    Args:
        reports: those that came out with the segment's rows.
        partitions: level -> number of tasks, for levels behind an exchange. The
            first level may lack: Spark decides how many tasks read what lies there.

    Example:
        Level 1 has tasks a, b; level 2 has c, d. Both c and d must have read
        {a, b}. If c read {a, b} and d read {a', b}, the segment is rejected.
    """
    for report in reports:
        if report.failure is not None:
            return Failed(report.failure)
    by_level: dict[int, list[Report]] = {}
    for report in reports:
        by_level.setdefault(report.level, []).append(report)
    for level, count in sorted(partitions.items()):
        present = sorted(report.partition for report in by_level.get(level, ()))
        if present != list(range(count)):
            return Rejected(f"level {level} reported from partitions {present} of {count}")
        sent = _digest(report.attempt for report in by_level.get(level - 1, ()))
        for report in by_level[level]:
            if level - 1 in by_level and (report.consumed_count, report.consumed_sum) != sent:
                return Rejected(
                    f"level {level}, partition {report.partition} read other attempts of "
                    f"level {level - 1} than those that reported"
                )
    return Accepted()


def _digest(attempts: Iterable[int]) -> tuple[int, int]:
    numbers = list(attempts)
    return len(numbers), sum(numbers) % (1 << 64)

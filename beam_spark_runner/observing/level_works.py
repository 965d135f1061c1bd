"""The slowest tasks of each level, and the keys that have most of their rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from beam_spark_runner.scheduling.task_work import TaskWork

MAX_SLOWEST = 5
"""How many tasks of a level are remembered."""
_MAX_LEVELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelWork:
    """The work of the tasks of a level: of the Spark job that runs, or the last one.

    Attributes:
        level: Its number among all levels of the plan.
        steps: The names of its steps. "": not known.
        tasks: How many tasks have had rows so far.
        rows: The rows that they have read.
        median_s: The median of the times for which they have worked.
        slowest: Those that have worked longest, the slowest first.
    """

    level: int
    steps: str = ""
    tasks: int
    rows: int
    median_s: float
    slowest: tuple[TaskWork, ...]


def level_works(works: Iterable[TaskWork]) -> tuple[LevelWork, ...]:
    """Return the work of each level, in the order of the levels.

    Example:
        >>> times = enumerate((1, 7, 2))
        >>> works = [TaskWork(level=2, partition=p, spent_s=s, rows=9) for p, s in times]
        >>> (work,) = level_works(works)
        >>> work.tasks, work.rows, work.median_s, [task.partition for task in work.slowest]
        (3, 27, 2, [1, 2, 0])
    """
    by_level: dict[int, list[TaskWork]] = {}
    for work in works:
        if work.rows:
            by_level.setdefault(work.level, []).append(work)
    return tuple(
        LevelWork(
            level=level,
            tasks=len(tasks),
            rows=sum(task.rows for task in tasks),
            median_s=median(task.spent_s for task in tasks),
            slowest=tuple(sorted(tasks, key=lambda task: -task.spent_s)[:MAX_SLOWEST]),
        )
        for level, tasks in sorted(by_level.items())
    )


class LevelWorks:
    """Remembers the work of levels that have run. Threads: one writes, any may read."""

    def __init__(self) -> None:
        self._by_level: dict[int, LevelWork] = {}

    def note(self, works: Iterable[TaskWork]) -> None:
        """Note the tasks of a Spark job that has ended, in place of earlier ones of its levels."""
        for work in level_works(works):
            self._by_level.pop(work.level, None)
            self._by_level[work.level] = work
        while len(self._by_level) > _MAX_LEVELS:
            del self._by_level[next(iter(self._by_level))]

    def with_running(self, running: Sequence[TaskWork]) -> tuple[LevelWork, ...]:
        """Return the work of all levels; that of running tasks in place of what their level had."""
        by_level = {**self._by_level, **{work.level: work for work in level_works(running)}}
        return tuple(by_level[level] for level in sorted(by_level))

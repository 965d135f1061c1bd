"""Rounds: residuals of splittable DoFns are spread over the cluster by further Spark jobs.

A task with a splittable DoFn stops when its budget is spent, and writes the residuals as rows.
The levels downstream then pass their input on unprocessed, because a grouping must not fire
before its input is complete. The driver runs the residuals in rounds, then the levels downstream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from beam_spark_runner.core.errors import InvariantError


@dataclass(frozen=True, slots=True)
class RanLevels:
    """The Spark job was accepted; ``left_by`` is the level that left residuals, if one did."""

    left_by: int | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The only task of the Spark job was accepted, and did not run all levels.

    The next job begins with the level ``at``, of which the task may have read some rows.
    """

    at: int


@dataclass(frozen=True, slots=True)
class RunLevels:
    """Run the segment from level ``first`` on to its end, in one Spark job."""

    first: int
    budget_s: float


@dataclass(frozen=True, slots=True)
class RunRound:
    """Run one level on the residuals of the previous Spark job."""

    level: int
    number: int  # 1 for the first round
    budget_s: float


@dataclass(frozen=True, slots=True)
class FinishSegment:
    """All of the segment has run."""


Action = RunLevels | RunRound | FinishSegment


class Rounds:
    """Decides which Spark jobs one segment needs: each event results in one action.

    Budgets double from round to round, so that there are few rounds however long the work takes.
    They have a limit where each accepted Spark job is stored: a crash repeats little then.

    Args:
        levels: The number of levels of the segment.
        budget_s: The time after which a task leaves the rest of its restrictions as residuals.
        longest_s: The longest budget. None: there is no limit.

    Example:
        levels 0 1 2, where 1 hosts a splittable DoFn that takes 10 s:
        levels from 0; rounds of 4 s and 8 s at level 1; levels from 2.
    """

    def __init__(self, levels: int, budget_s: float, longest_s: float | None = None) -> None:
        self._levels = levels
        self._longest_s = longest_s
        self._budget_s = self._limited(budget_s)
        self._last: Action | None = None

    def start(self) -> Action:
        """Return the first action."""
        return self._do(RunLevels(0, self._budget_s))

    def on(self, event: RanLevels | Stopped) -> Action:
        """Return what to do after ``event``."""
        if isinstance(event, Stopped):
            if self._last != RunLevels(0, self._budget_s) or not 0 <= event.at <= self._levels:
                raise InvariantError(f"unexpected {event} after {self._last}")
            return self._do(self._from(event.at))
        left_by = event.left_by
        match self._last:
            case RunLevels(first=first):
                if left_by is None:
                    return self._do(FinishSegment())
                if not first <= left_by < self._levels:
                    raise InvariantError(f"residuals of level {left_by}, after {self._last}")
                return self._do(RunRound(left_by, 1, self._limited(2 * self._budget_s)))
            case RunRound(level=level, number=number, budget_s=budget_s):
                if left_by is None:
                    return self._do(self._from(level + 1))
                if left_by != level:
                    raise InvariantError(f"residuals of level {left_by}, after {self._last}")
                return self._do(RunRound(level, number + 1, self._limited(2 * budget_s)))
        raise InvariantError(f"unexpected {event} after {self._last}")

    def _from(self, level: int) -> Action:
        return FinishSegment() if level == self._levels else RunLevels(level, self._budget_s)

    def _limited(self, budget_s: float) -> float:
        return budget_s if self._longest_s is None else min(budget_s, self._longest_s)

    def _do(self, action: Action) -> Action:
        self._last = action
        return action


def may_leave_work(sizes: Sequence[float]) -> bool:
    """Whether a task should leave its residuals to a round when its budget is spent.

    If one restriction is at least half of the task's work, other cores may be idle before it
    ends. Many restrictions of similar sizes are spread well enough, and to process them in this
    task saves Spark jobs.

    Args:
        sizes: The sizes of the task's restrictions, from the SDK.
    """
    return 2 * max(sizes, default=0.0) >= sum(sizes)

"""The budgets of an epoch: for sources, and for what is due."""

from collections.abc import Sequence

from beam_spark_runner.scheduling.attempts import Report, times_of_levels
from beam_spark_runner.scheduling.due_budget import DueBudget
from beam_spark_runner.scheduling.source_budget import SourceBudget


class Budgets:
    """The budgets of the next epoch.

    Args:
        interval_us: The time that an epoch should take, microseconds.
    """

    def __init__(self, interval_us: int) -> None:
        self._sources = SourceBudget(interval_us)
        self._due = DueBudget(interval_us)

    @property
    def sources_us(self) -> int:
        """How long sources are processed, microseconds."""
        return self._sources.us

    @property
    def due_us(self) -> int:
        """How long each stage fires what is due, microseconds."""
        return self._due.us

    @property
    def longest_us(self) -> int:
        """The longer budget, microseconds."""
        return max(self.sources_us, self.due_us)

    @property
    def were_enough(self) -> bool:
        """Whether the last epoch left nothing over, of sources or of what was due."""
        return self._sources.was_enough and self._due.was_enough

    def choose_next(self, took_us: int, reports: Sequence[Report]) -> None:
        """Choose the budgets of the next epoch.

        The time of what is due is no cost that a larger budget for sources would save, so that it
        does not raise this budget.

        Args:
            took_us: The time of the last epoch.
            reports: The reports of its tasks.
        """
        shards = [(report.level, report.shard) for report in reports if report.shard is not None]
        interrupted = {level for level, shard in shards if shard.was_interrupted}
        tasks_us = sum(times_of_levels(reports).values())
        due_us = min(len(interrupted) * self._due.us, tasks_us)
        was_cut_off = any(shard.was_cut_off for _, shard in shards)
        self._sources.choose_next(took_us - due_us, tasks_us - due_us, was_enough=not was_cut_off)
        self._due.choose_next(was_enough=not interrupted)

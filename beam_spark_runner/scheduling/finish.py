"""Decides which tasks of a streaming plan have finished, and which levels still run.

A stage has finished in a task once its input watermark is at the end of time, the shard has nothing
of the stage, and everything upstream has finished. The watermark alone is not enough: a source may
be at the end of time before its last callbacks have run. Finished stages do not run again, not even
after a restart of the pipeline, and nothing is stored for them (Flink's FLIP-147).
"""

import functools
from collections.abc import Collection, Iterable, Mapping

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.key_groups import overlapping
from beam_spark_runner.plan.feeding import feeders, inputs
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.scheduling.attempts import Report

Finished = Mapping[int, frozenset[int]]
"""By destination: the partitions in which the stage that reads it has finished."""


class Finishing:
    """Decides for one plan which stages have finished in which tasks.

    Args:
        plan: The plan of the pipeline.
        partitions: The number of partitions of each exchange.
    """

    def __init__(self, plan: Plan, partitions: int) -> None:
        self._plan = plan
        self._inputs = inputs(plan)
        self._feeders = feeders(plan)
        self._levels = levels(plan)
        self._impulses = frozenset(dest for each in plan.segments for dest in each.impulses)
        self._tasks: dict[StageId, frozenset[int]] = {}
        self._is_exchanged: dict[StageId, bool] = {}
        for level in self._levels:
            self._is_exchanged.update(dict.fromkeys(level.stages, level.has_exchange))
            tasks = frozenset(range(partitions if level.has_exchange else 1))
            self._tasks.update(dict.fromkeys(level.stages, tasks))

    def finished_after(self, previous: Finished, reports: Iterable[Report]) -> Finished:
        """Return what has finished after an epoch.

        Args:
            previous: What had finished before the epoch.
            reports: The reports of the epoch's tasks.
        """
        reported = {dest: set(partitions) for dest, partitions in previous.items()}
        for report in reports:
            for dest in report.finished:
                reported.setdefault(dest, set()).add(report.partition)
        return self._confirmed_by_upstream(reported)

    def _confirmed_by_upstream(self, reported: Mapping[int, Collection[int]]) -> Finished:
        """Return which of the reported partitions have finished, given those upstream."""
        done_by_stage = {
            stage: tasks.intersection(reported.get(int(self._inputs[stage]), ()))
            for stage, tasks in self._tasks.items()
        }
        self._remove_unconfirmed(done_by_stage, self._tasks)
        return {int(self._inputs[stage]): done for stage, done in done_by_stage.items() if done}

    def _remove_unconfirmed(
        self, done_by_stage: dict[StageId, frozenset[int]], stages: Collection[StageId]
    ) -> None:
        """Remove partitions of some stages that have not finished, because of those upstream."""
        # A side input may be gathered in a later level than the one that looks it up, so that
        # one pass in the order of levels is not enough.
        has_changed = True
        while has_changed:
            has_changed = False
            for stage in stages:
                feeding = self._feeders[stage]
                done = done_by_stage[stage].intersection(
                    *(done_by_stage[each] for each in feeding.in_task)
                )
                if any(done_by_stage[each] != self._tasks[each] for each in feeding.exchanged):
                    done = frozenset()
                has_changed |= done != done_by_stage[stage]
                done_by_stage[stage] = done

    def finished_in_this_plan(
        self,
        finished: Finished,
        was_exchanged: Mapping[int, bool],
        previous_partitions: int,
        groups: int,
    ) -> Finished:
        """Convert what has finished in an earlier version, or with another number of partitions.

        A new partition has finished if all old ones from which it gets key groups have. A new
        stage has finished if everything upstream has.

        Args:
            finished: What had finished in the earlier version, by the destinations of this one.
            was_exchanged: By destination: whether the stage ran in as many partitions as an
                exchange has. New stages are missing.
            previous_partitions: The number of partitions that an exchange had.
            groups: The number of key groups, which is the same in both.
        """
        done_by_stage: dict[StageId, frozenset[int]] = {}
        new = []
        for stage, tasks in self._tasks.items():
            dest = int(self._inputs[stage])
            done = finished.get(dest, frozenset())
            if dest not in was_exchanged:
                new.append(stage)
                feeding = self._feeders[stage]
                # A new stage that the driver feeds has not begun.
                done = tasks if feeding.in_task or feeding.exchanged else frozenset()
            elif was_exchanged[dest] != self._is_exchanged[stage]:
                all_done = len(done) == (previous_partitions if was_exchanged[dest] else 1)
                done = tasks if all_done else frozenset()
            elif self._is_exchanged[stage]:
                of = functools.partial(overlapping, groups=groups, partitions=len(tasks))
                done = frozenset(
                    p for p in tasks if done.issuperset(of(p, others=previous_partitions))
                )
            done_by_stage[stage] = done
        self._remove_unconfirmed(done_by_stage, new)
        return {int(self._inputs[stage]): done for stage, done in done_by_stage.items() if done}

    def levels(self, finished: Finished) -> range:
        """Return the levels that still have to run, counted over all segments; empty at the end.

        They are all from the first to the last level with a stage that has not finished, because
        those in between pass rows on.
        """
        running = [
            index
            for index, level in enumerate(self._levels)
            if not all(self._is_done(stage, finished) for stage in level.stages)
        ]
        return range(running[0], running[-1] + 1) if running else range(0)

    def contradictions(self, finished: Finished) -> tuple[str, ...]:
        """Return messages about stages that cannot have finished, as an earlier run recorded.

        If steps upstream of a finished stage still ran, their elements would be lost. See Flink's
        ``VertexFinishedStateChecker``.
        """
        confirmed = self._confirmed_by_upstream(finished)
        return tuple(
            f"{self._plan.stages[stage].name} has finished, although a step that feeds it has not"
            for stage, dest in self._inputs.items()
            if confirmed.get(int(dest)) != finished.get(int(dest))
        )

    def completed(self, finished: Finished) -> frozenset[int]:
        """Return the destinations whose stages have finished in all of their tasks."""
        done = (stage for stage in self._tasks if self._is_done(stage, finished))
        return frozenset(int(self._inputs[stage]) for stage in done)

    def finished_early(self, finished: Finished) -> list[str]:
        """Return the names of stages that have finished in some tasks while the pipeline runs.

        Stages that read only an impulse are left out, because they run only in the first epoch.
        """
        if not self.levels(finished):
            return []
        return [
            self._plan.stages[stage].name
            for stage in self._tasks
            if self._inputs[stage] not in self._impulses and finished.get(int(self._inputs[stage]))
        ]

    def _is_done(self, stage: StageId, finished: Finished) -> bool:
        return finished.get(int(self._inputs[stage])) == self._tasks[stage]

"""Decides which tasks of a streaming plan have finished, and which levels still run.

A task of a stage has finished once its input has come to the end of time, nothing of the stage is
left in its shard, and whatever feeds it has finished. The watermark alone does not say so: a
source may be at the end of time before its last callbacks have run. What has finished runs no
more, in later runs of the pipeline neither, and nothing of it is stored (Flink's FLIP-147).
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
    """The rules for one plan.

    Args:
        plan: which.
        partitions: of each exchange.
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

    def after(self, before: Finished, reports: Iterable[Report]) -> Finished:
        """Return which tasks have finished once an epoch has run.

        Args:
            before: those that had.
            reports: of the epoch's tasks.
        """
        reported = {dest: set(partitions) for dest, partitions in before.items()}
        for report in reports:
            for dest in report.finished:
                reported.setdefault(dest, set()).add(report.partition)
        return self._confirmed(reported)

    def _confirmed(self, reported: Mapping[int, Collection[int]]) -> Finished:
        """Return what has finished by what tasks say of themselves and by what feeds them."""
        found = {
            stage: tasks.intersection(reported.get(int(self._inputs[stage]), ()))
            for stage, tasks in self._tasks.items()
        }
        self._confirm(found, self._tasks)
        return {int(self._inputs[stage]): done for stage, done in found.items() if done}

    def _confirm(self, found: dict[StageId, frozenset[int]], stages: Collection[StageId]) -> None:
        """Take back what has not finished of some stages, since what feeds it has not."""
        # A side input may be gathered in a later level than the one that looks it up, so that the
        # order of levels is not that of what feeds what.
        has_changed = True
        while has_changed:
            has_changed = False
            for stage in stages:
                feeding = self._feeders[stage]
                done = found[stage].intersection(*(found[each] for each in feeding.in_task))
                if any(found[each] != self._tasks[each] for each in feeding.exchanged):
                    done = frozenset()
                has_changed |= done != found[stage]
                found[stage] = done

    def adapted(
        self, finished: Finished, known: Mapping[int, bool], before: int, groups: int
    ) -> Finished:
        """Return what has finished of an earlier version, or with other partitions, in this one.

        A new partition has finished if all old ones have from which it gets key groups. New stages
        have finished if all that feeds them has.

        Args:
            finished: in the earlier version, by the destinations of this one.
            known: by destination: whether the stage had as many partitions as an exchange; those
                of new stages are missing.
            before: how many partitions an exchange had.
            groups: how many key groups there are; these are the same.
        """
        found: dict[StageId, frozenset[int]] = {}
        new = []
        for stage, tasks in self._tasks.items():
            dest = int(self._inputs[stage])
            done = finished.get(dest, frozenset())
            if dest not in known:
                new.append(stage)
                feeding = self._feeders[stage]
                # What the driver feeds has not begun.
                done = tasks if feeding.in_task or feeding.exchanged else frozenset()
            elif known[dest] != self._is_exchanged[stage]:
                all_done = len(done) == (before if known[dest] else 1)
                done = tasks if all_done else frozenset()
            elif self._is_exchanged[stage]:
                of = functools.partial(overlapping, groups=groups, partitions=len(tasks))
                done = frozenset(p for p in tasks if done.issuperset(of(p, others=before)))
            found[stage] = done
        self._confirm(found, new)
        return {int(self._inputs[stage]): done for stage, done in found.items() if done}

    def levels(self, finished: Finished) -> range:
        """Return the levels that still have to run; none, if the pipeline is done.

        They reach from the first to the last one with a stage that has not finished: those in
        between pass rows on. They are counted over all segments.
        """
        running = [
            index
            for index, level in enumerate(self._levels)
            if not all(self._is_done(stage, finished) for stage in level.stages)
        ]
        return range(running[0], running[-1] + 1) if running else range(0)

    def contradictions(self, finished: Finished) -> tuple[str, ...]:
        """Say for people what an earlier run has recorded that cannot be so in this plan.

        Elements would be lost, if a stage that has finished were still fed. See Flink's
        ``VertexFinishedStateChecker``.
        """
        confirmed = self._confirmed(finished)
        return tuple(
            f"{self._plan.stages[stage].name} has finished, although a step that feeds it has not"
            for stage, dest in self._inputs.items()
            if confirmed.get(int(dest)) != finished.get(int(dest))
        )

    def finished_early(self, finished: Finished) -> list[str]:
        """Name the stages of which tasks have finished although the pipeline goes on.

        What only carries an impulse is not meant: it runs in the first epoch alone.
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

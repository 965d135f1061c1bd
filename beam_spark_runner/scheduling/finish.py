"""Decides which tasks of a streaming plan have finished, and which levels still run.

A task of a stage has finished once its input has come to the end of time, nothing of the stage is
left in its shard, and whatever feeds it has finished. The watermark alone does not say so: a
source may be at the end of time before its last callbacks have run. What has finished runs no
more, in later runs of the pipeline neither, and nothing of it is stored (Flink's FLIP-147).
"""

from collections.abc import Collection, Iterable, Mapping

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.key_groups import overlapping
from beam_spark_runner.plan.feeding import feeders, inputs
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.scheduling.attempts import Report

Finished = Mapping[int, frozenset[int]]
"""By destination: the partitions in which the stage that reads it has finished."""


def rescaled_tasks(
    plan: Plan, finished: Finished, before: int, after: int, groups: int
) -> Finished:
    """Return what has finished if the key groups are divided otherwise.

    A new partition has finished if all old ones have from which it gets key groups.

    Args:
        plan: which.
        finished: by old partitions.
        before: how many of these there were.
        after: how many new ones there are.
        groups: how many key groups there are.
    """
    exchanged = {stage for level in levels(plan) if level.has_exchange for stage in level.stages}
    result = dict(finished)
    for stage, input_ in inputs(plan).items():
        done = finished.get(int(input_))
        if done is None or stage not in exchanged:
            continue
        new = frozenset(
            partition
            for partition in range(after)
            if done.issuperset(overlapping(partition, groups, after, before))
        )
        result.pop(int(input_))
        if new:
            result[int(input_)] = new
    return result


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
        for level in self._levels:
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
        # A side input may be gathered in a later level than the one that looks it up, so that the
        # order of levels is not that of what feeds what.
        has_changed = True
        while has_changed:
            has_changed = False
            for stage, feeding in self._feeders.items():
                done = found[stage].intersection(*(found[each] for each in feeding.in_task))
                if any(found[each] != self._tasks[each] for each in feeding.exchanged):
                    done = frozenset()
                has_changed |= done != found[stage]
                found[stage] = done
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

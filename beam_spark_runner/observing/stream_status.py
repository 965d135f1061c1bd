"""Makes the status of a streaming pipeline, for people, from the reports of an epoch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import DestinationId, StageId
from beam_spark_runner.core.time import MAX_US, MIN_US, whole_milliseconds
from beam_spark_runner.graph import facts
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.observing.epoch_status import (
    Blocked,
    EpochPart,
    EpochStatus,
    EpochTimes,
    Hold,
    HoldReason,
    LevelState,
    StepStatus,
)
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Plan, Stage, Stored
from beam_spark_runner.plan.storing import lags
from beam_spark_runner.scheduling.attempts import (
    Report,
    Residuals,
    StageReport,
    Waiting,
    times_of_levels,
)
from beam_spark_runner.scheduling.finish import Finished


class StreamStatus:
    """Makes the status of a pipeline after each epoch.

    Args:
        plan: The plan of the pipeline.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._inputs = inputs(plan)
        self._steps = {id_: _Steps.of_stage(plan, id_, dest) for id_, dest in self._inputs.items()}
        self._levels = levels(plan)
        self._storing = [_storing(plan, level.stages, self._inputs) for level in self._levels]
        producer = facts.producers(plan.graph)
        self._producers = {
            int(id_): plan.graph.transforms[producer[destination.arriving]].name
            for id_, destination in plan.destinations.items()
            if destination.delivery is Delivery.SIDE_INPUT
        }

    def status_after(
        self,
        epoch: int,
        reports: Sequence[Report],
        *,
        clock_us: int,
        watermarks_us: Mapping[int, int],
        finished: Finished,
        took: EpochTimes,
    ) -> EpochStatus:
        """Return the status after an epoch.

        Args:
            epoch: The number of the epoch.
            reports: The reports of the attempts that were accepted.
            clock_us: The processing time of the epoch.
            watermarks_us: The committed input watermarks of stages, by destination.
            finished: The partitions in which stages have finished.
            took: How long the epoch took.
        """
        stages = _reports_by_stage(reports)
        statuses: dict[str, StepStatus] = {}
        for id_, steps in self._steps.items():
            dest = int(self._inputs[id_])
            input_us = watermarks_us.get(dest, MIN_US)
            # A stage that has finished does not run, and is not reported.
            report = stages.get(dest, StageReport(MAX_US if dest in finished else input_us))
            for name, status in self._statuses_of_stage(id_, steps, input_us, report):
                statuses[name] = _merge(statuses[name], status) if name in statuses else status
        self._add_deferred(statuses, reports)
        slowest, tasks_us = self._slowest(reports)
        tasks_us = min(tasks_us, took.jobs_us)
        return EpochStatus(
            epoch=epoch,
            clock_us=clock_us,
            tasks_us=sum(each.spent_us for each in reports),
            was_cut_off=any(each.shard is not None and each.shard.was_cut_off for each in reports),
            took_us=took.total_us,
            parts_us={
                EpochPart.PLANNING: took.planning_us,
                EpochPart.TASKS: tasks_us,
                EpochPart.SPARK: took.jobs_us - tasks_us,
                EpochPart.COMMIT: max(0, took.total_us - took.planning_us - took.jobs_us),
            },
            budget_us=took.budget_us,
            slowest=slowest,
            steps=statuses,
            stored_bytes=self._stored_bytes(reports),
            stored_state=self._stored_state(reports),
            group_bytes=self._group_bytes(reports),
        )

    def _statuses_of_stage(
        self, id_: StageId, steps: "_Steps", input_us: int, report: StageReport
    ) -> Iterable[tuple[str, StepStatus]]:
        stage = self._plan.stages[id_]
        hold = _hold(stage, input_us, report)
        blocked = None
        if (waiting := report.waiting) is not None:
            producers = tuple(sorted({self._producers[view] for view in waiting.views}))
            blocked = Blocked(waiting.hold_us, waiting.window, producers)
        for name, is_first in steps.names.items():
            left = None
            if name in steps.declarative:
                left = 0 if report.left is None else report.left.count
            status = StepStatus(
                left=left,
                input_us=input_us if is_first else report.output_us,
                output_us=report.output_us,
                hold=hold if is_first else None,
                blocked=blocked if name in steps.with_side_inputs else None,
            )
            yield name, status

    def _add_deferred(self, statuses: dict[str, StepStatus], reports: Sequence[Report]) -> None:
        counts: dict[str, int] = {}
        sizes: dict[str, float | None] = {}
        for report in reports:
            for step, deferral in report.deferred.items():
                counts[step] = counts.get(step, 0) + deferral.count
                previous = sizes.get(step, 0.0)
                sizes[step] = (
                    None if previous is None or deferral.size is None else previous + deferral.size
                )
        for stage in self._plan.stages.values():
            if Stored.RESTRICTIONS not in stage.stores:
                continue
            step = stage.transforms[0]
            name = self._plan.graph.transforms[step].name
            count = counts.get(str(step), 0)
            statuses[name] = replace(
                statuses[name], restrictions=count, backlog=sizes.get(str(step), 0.0)
            )

    def _slowest(self, reports: Sequence[Report]) -> tuple[tuple[str, int], int]:
        by_level = times_of_levels(reports)
        if not by_level:
            return ("", 0), 0
        level = max(by_level, key=lambda number: by_level[number])
        names = [self._plan.stages[stage].name for stage in self._levels[level].stages]
        return (", ".join(names), by_level[level]), sum(by_level.values())

    def _stored_bytes(self, reports: Sequence[Report]) -> Mapping[str, int]:
        sizes: dict[str, int] = {}
        for report in reports:
            if report.shard is not None:
                name = self._storing[report.level]
                sizes[name] = sizes.get(name, 0) + report.shard.stored_bytes
        return sizes

    def _stored_state(self, reports: Sequence[Report]) -> Mapping[str, LevelState]:
        states: dict[str, LevelState] = {}
        for report in reports:
            if (shard := report.shard) is not None:
                name = self._storing[report.level]
                state = states.get(name, LevelState())
                states[name] = LevelState(
                    records=state.records + shard.stored_records,
                    next_event_us=_first_of(state.next_event_us, shard.next_event_us),
                    next_clock_us=_first_of(state.next_clock_us, shard.next_clock_us),
                )
        return states

    def _group_bytes(self, reports: Sequence[Report]) -> Mapping[str, int]:
        sizes: dict[str, int] = {}
        for report in reports:
            if report.shard is not None and report.shard.group_bytes:
                name = self._storing[report.level]
                sizes[name] = max(sizes.get(name, 0), report.shard.group_bytes)
        return sizes


def _first_of(*times_us: int | None) -> int | None:
    return min((time_us for time_us in times_us if time_us is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The names of the steps of a stage.

    Attributes:
        names: By name, in the order of the pipeline: whether the step reads the input of the
            stage, so that the stage's hold is shown there.
        with_side_inputs: The names of steps with side inputs.
        declarative: The names of declarative steps.
    """

    names: Mapping[str, bool]
    with_side_inputs: frozenset[str]
    declarative: frozenset[str]

    @staticmethod
    def of_stage(plan: Plan, id_: StageId, dest: DestinationId) -> "_Steps":
        stage = plan.stages[id_]
        names: dict[str, bool] = {}
        if is_group := Stored.GROUPS in stage.stores:
            names[plan.destinations[dest].name] = True
        for id_of_step in stage.transforms:
            step = plan.graph.transforms[id_of_step]
            # A stateful step that follows a grouping directly shares its hold.
            holds = Stored.KEYS in stage.stores or not is_group
            is_first = holds and stage.input in step.main_inputs.values()
            names[_name(step)] = names.get(_name(step), False) or is_first
        waiting = {
            _name(plan.graph.transforms[side_input.transform]) for side_input in stage.side_inputs
        }
        steps = (plan.graph.transforms[id_of_step] for id_of_step in stage.transforms)
        declarative = {_name(step) for step in steps if step.declared}
        return _Steps(names, frozenset(waiting), frozenset(declarative))


def _name(transform: Transform) -> str:
    """Return the name of a step; of an inserted "/Wait" step, that of the step that it precedes."""
    if transform.urn == urns.FLATTEN and transform.side_inputs:
        return transform.name.removesuffix("/Wait")  # see ``graph.passes.await_side_inputs``
    return transform.name


def _storing(plan: Plan, stages: Sequence[StageId], inputs: Mapping[StageId, DestinationId]) -> str:
    """Return the names of the steps of a level that store something, as one text."""
    names = []
    for id_ in stages:
        stage = plan.stages[id_]
        if Stored.VIEW in stage.stores:
            names.append(stage.name)
        elif stage.stores:
            names.append(plan.destinations[inputs[id_]].name)
    return ", ".join(dict.fromkeys(names))


def _hold(stage: Stage, input_us: int, report: StageReport) -> Hold | None:
    if report.output_us >= whole_milliseconds(input_us):
        return None
    hold_us, waiting = report.hold_us, report.waiting
    held_us = input_us if hold_us is None else min(input_us, hold_us)
    if lags(stage.stores):
        holder = HoldReason.COMMIT
    elif report.output_us < whole_milliseconds(held_us):
        holder = HoldReason.DUE_TIMER
    elif waiting is not None and waiting.hold_us <= held_us:
        holder = HoldReason.SIDE_INPUT
    elif report.left is not None and report.left.hold_us <= held_us:
        holder = HoldReason.READ
    elif Stored.RESTRICTIONS in stage.stores:
        holder = HoldReason.RESTRICTION
    elif Stored.UNSORTED in stage.stores:
        holder = HoldReason.ORDER
    elif stage.stores & {Stored.GROUPS, Stored.VIEW}:
        holder = HoldReason.WINDOW
    else:
        holder = HoldReason.TIMER
    return Hold(holder, report.output_us)


def _reports_by_stage(reports: Sequence[Report]) -> Mapping[int, StageReport]:
    """Combine the reports of all tasks by stage: the least of their times."""
    stages: dict[int, StageReport] = {}
    for report in reports:
        for dest, stage_report in report.stages.items():
            previous = stages.get(dest)
            stages[dest] = stage_report if previous is None else _combine(previous, stage_report)
    return stages


def _combine(first: StageReport, second: StageReport) -> StageReport:
    holds = [report.hold_us for report in (first, second) if report.hold_us is not None]
    waiting = [report.waiting for report in (first, second) if report.waiting is not None]
    residuals = [report.left for report in (first, second) if report.left is not None]
    return StageReport(
        min(first.output_us, second.output_us),
        min(holds, default=None),
        _earliest(waiting),
        Residuals(
            sum(residual.count for residual in residuals),
            min(residual.hold_us for residual in residuals),
        )
        if residuals
        else None,
    )


def _earliest(waiting: Sequence[Waiting]) -> Waiting | None:
    return min(waiting, key=lambda entry: (entry.hold_us, entry.window), default=None)


def _merge(first: StepStatus, second: StepStatus) -> StepStatus:
    """Combine the status of two parts of a step, which are consecutive or parallel."""
    last = first if first.output_us <= second.output_us else second
    return StepStatus(
        input_us=min(first.input_us, second.input_us),
        output_us=last.output_us,
        hold=last.hold or first.hold or second.hold,
        blocked=first.blocked or second.blocked,
        left=first.left if second.left is None else (first.left or 0) + second.left,
    )

"""The same pipeline undisturbed: all of it in memory, and every key looked at in each epoch."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from beam_spark_runner.core.time import MAX_US, MIN_US, whole_milliseconds
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.timers import Domain, Instant, Timer
from beam_spark_runner.semantics.trigger_machines import TriggerState
from beam_spark_runner.semantics.window_states import KeyWindows, ListedValues, WindowState
from tests.unit.semantics.strategies import strategy_of
from tests.unit.simulation.counter import CountedKey
from tests.unit.simulation.elements import (
    COUNTED,
    LEVELS,
    LOOKED,
    SOURCE,
    Advance,
    Row,
    TaskInput,
    TaskOutput,
    partition_of,
    windowed,
)
from tests.unit.simulation.looked_reference import LookedStage
from tests.unit.simulation.pipeline import PARTITIONS, Pipeline, stores
from tests.unit.simulation.reference_stage import StageInMemory
from tests.unit.simulation.sources import Slice


class _SourceStage(StageInMemory):
    def __init__(self, pipeline: Pipeline) -> None:
        self._sources = pipeline.sources
        self.left: list[Slice] = []

    def run(self, task: TaskInput, attempt: int, output: TaskOutput) -> None:
        if task.feeds_impulses:
            self.left = [
                Slice(source, 0, (), task.clock_us, self._sources.hold_us(source, 0))
                for source in self._sources.of_partition(task.partition, task.partitions)
            ]
        left = []
        for each in self.left:
            taken = each
            if each.due_us <= task.clock_us:
                taken = self._sources.take(each.source, each.position, task.clock_us, attempt)
                output.rows += taken.rows
            if not self._sources.is_done(taken):
                left.append(taken)
        self.left = left

    def due(self) -> tuple[list[int], list[int]]:
        return [], [each.due_us for each in self.left]

    def holds(self) -> list[int]:
        return [each.hold_us for each in self.left]

    def is_empty(self) -> bool:
        return not self.left


class _Group(StageInMemory):
    def __init__(self, pipeline: Pipeline, stage: int) -> None:
        self._stage = stage
        self._windowing = pipeline.groupings[stage].windowing
        self._machine = PaneMachine(strategy_of(self._windowing))
        self._keys: defaultdict[str, KeyWindows] = defaultdict(dict)
        # As of when each window has advanced last: an interrupted stage leaves some behind.
        self._due: defaultdict[str, dict[Any, tuple[int, int | None]]] = defaultdict(dict)

    def advance(
        self, each: Advance, rows: Sequence[Row], before: Instant, now: Instant, output: TaskOutput
    ) -> None:
        key = each.key
        windows, window_fn = self._keys[key], self._windowing.windowfn
        earlier, machine = dict(windows), self._machine
        elements = [windowed(row, window_fn) for row in rows]
        touched = machine.collect(windows, elements, before)
        panes = list(machine.ask(touched, before))
        advancing = [
            window
            for window, state in windows.items()
            if window in touched or window == each.window or earlier.get(window) is not state
        ]
        for window in sorted(advancing, key=lambda window: window.max_timestamp()):
            panes += machine.advance_one(windows, window, windows[window], now)
        for pane in panes:
            output.send(self._stage, pane, key, pane.value)
        due = {
            window: machine.due(windows[window], now) for window in advancing if window in windows
        }
        self._due[key] = {
            window: time for window, time in {**self._due[key], **due}.items() if window in windows
        }
        if not windows:
            del self._keys[key], self._due[key]

    def all_keys(self) -> Sequence[str]:
        return [*self._keys]

    def give(self, key: str, other: "_Group") -> None:
        """Let another task have what there is of a key."""
        other._keys[key] = self._keys[key]
        if key in self._due:
            other._due[key] = self._due[key]

    def check_settled(self, now: Instant) -> None:
        """No key would do anything if it were advanced once more."""
        for key, windows in self._keys.items():
            copied = {window: _without_values(state) for window, state in windows.items()}
            assert not list(self._machine.advance(copied, now)), f"{key} was forgotten"
            assert len(copied) == len(windows), f"windows of {key} were forgotten"

    def due(self) -> tuple[list[int], list[int]]:
        found = [each for some in self._due.values() for each in some.values()]
        return [event for event, _ in found], [clock for _, clock in found if clock is not None]

    def holds(self) -> list[int]:
        found = [
            self._machine.hold_us(state)
            for windows in self._keys.values()
            for window, state in windows.items()
        ]
        return [hold for hold in found if hold is not None]

    def is_empty(self) -> bool:
        return not self._keys


def _without_values(state: WindowState) -> WindowState:
    trigger = state.trigger
    return dataclasses.replace(
        state,
        trigger=TriggerState({*trigger.finished}, {**trigger.counts}, {**trigger.due_us}),
        values=ListedValues(),
    )


class _KeyInMemory(CountedKey):
    def __init__(self, key: str) -> None:
        super().__init__(key, TaskOutput())
        self.bags: defaultdict[Any, list[int]] = defaultdict(list)

    def begin(self, output: TaskOutput) -> None:
        self._output = output
        left = self.timers.remaining()
        self.timers.restart()
        for each in left:
            self.set(each)

    def bag(self, window: Any) -> list[int]:
        return self.bags[window]

    def add(self, window: Any, value: int) -> None:
        self.bags[window].append(value)

    def clear(self, window: Any) -> None:
        self.bags.pop(window, None)

    def drop(self, window: Any) -> None:
        self.bags.pop(window, None)


class _Counter(StageInMemory):
    def __init__(self) -> None:
        self._keys: dict[str, _KeyInMemory] = {}

    def advance(
        self,
        advance: Advance,
        rows: Sequence[Row],
        before: Instant,
        now: Instant,
        output: TaskOutput,
    ) -> None:
        counted = self._keys.setdefault(advance.key, _KeyInMemory(advance.key))
        counted.begin(output)
        counted.take(rows, before)
        assert counted.advance(now, None, advance.fired) == advance.fired

    def all_keys(self) -> Sequence[str]:
        return [*self._keys]

    def give(self, key: str, other: "_Counter") -> None:
        """Let another task have what there is of a key."""
        other._keys[key] = self._keys[key]

    def check_settled(self, now: Instant) -> None:
        """No timer is due any more."""
        for counted in self._keys.values():
            assert not counted.timers.would_leave(now), f"{counted.key} was forgotten"

    def _timers(self) -> list[Timer]:
        return [timer for counted in self._keys.values() for timer in counted.timers.remaining()]

    def due(self) -> tuple[list[int], list[int]]:
        clocks = [each.fires_us for each in self._timers() if each.domain is Domain.PROCESSING_TIME]
        events = [
            each.fires_us for each in self._timers() if each.domain is not Domain.PROCESSING_TIME
        ]
        return events, clocks

    def holds(self) -> list[int]:
        return [each.hold_us for each in self._timers()]

    def is_empty(self) -> bool:
        return not self._timers() and not any(
            any(counted.bags.values()) for counted in self._keys.values()
        )


class Reference:
    """The tasks of all levels. Asked once for each epoch that is committed."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._stages: dict[tuple[int, int], StageInMemory] = {}
        self._begin(PARTITIONS)

    def _begin(self, partitions: int) -> None:
        for partition in range(partitions):
            for stage in (stage for stages in LEVELS.values() for stage in stages):
                made: StageInMemory
                if stage == SOURCE:
                    made = _SourceStage(self._pipeline)
                elif stage == COUNTED:
                    made = _Counter()
                elif stage == LOOKED:
                    made = LookedStage()
                else:
                    made = _Group(self._pipeline, stage)
                self._stages[stage, partition] = made

    def begin_with(self, partitions: int) -> None:
        """Begin with another number of partitions: nothing has run yet."""
        self._stages.clear()
        self._begin(partitions)

    def move(self, partitions: int, slices: Sequence[Sequence[Slice]]) -> None:
        """Have another number of partitions from now on.

        Args:
            partitions: of each level.
            slices: what is stored of sources, by the partition in which the runner has put it.
        """
        before = self._stages
        self._stages = {}
        self._begin(partitions)
        left: list[Slice] = []
        for (number, _), stage in before.items():
            if isinstance(stage, _SourceStage):
                left += stage.left
            else:
                assert isinstance(stage, _Group | _Counter | LookedStage)
                for key in stage.all_keys():
                    target = self._stages[number, partition_of(key, partitions)]
                    stage.give(key, target)  # type: ignore[arg-type]  # of the same kind
        assert sorted(each for some in slices for each in some) == sorted(
            each._replace(rows=()) for each in left
        ), "restrictions were lost or doubled"
        for partition, some in enumerate(slices):
            target = self._stages[SOURCE, partition]
            assert isinstance(target, _SourceStage)
            target.left = [*some]

    def is_empty(self) -> bool:
        """Whether nothing is left in any task."""
        return all(stage.is_empty() for stage in self._stages.values())

    def run_task(
        self,
        level: int,
        task: TaskInput,
        attempt: int,
        advances: Mapping[int, Sequence[Advance]],
        interrupted: bool,
        done: Sequence[tuple[str, Any]],
        left: Sequence[tuple[str, Any]],
    ) -> TaskOutput:
        """Run what a task of an accepted attempt has run.

        Args:
            level: of the task.
            task: what it has begun with.
            attempt: which.
            advances: which keys it has advanced, by stage. Where it was not interrupted, further
                ones would have changed nothing: that is checked.
            interrupted: whether any stage was.
            done: see ``TaskOutput``.
            left: see ``TaskOutput``.
        """
        output = TaskOutput(was_interrupted=interrupted)
        for stage_number in LEVELS[level]:
            _, now = _instants(task, stage_number)
            output.inputs_us[stage_number] = now.watermark_us
            if not stores(self._pipeline, level):
                output.rows += task.rows
                if now.watermark_us == MAX_US:
                    output.finished.add(stage_number)
                self._send_watermark(output, level, now.watermark_us)
                continue
            stage = self._stages[stage_number, task.partition]
            if isinstance(stage, _SourceStage):
                stage.run(task, attempt, output)
            elif isinstance(stage, LookedStage):
                before, now = _instants(task, stage_number)
                rows = [row for row in task.rows if row.dest == stage_number]
                stage.run(rows, before, now, done, left, output)
                if not interrupted:
                    stage.check_settled(now)
            else:
                self._run_keys(stage_number, stage, task, advances[stage_number], output)
                assert isinstance(stage, _Group | _Counter)
                if not interrupted:
                    stage.check_settled(now)
            if now.watermark_us == MAX_US and stage.is_empty():
                output.finished.add(stage_number)
            events, clocks = stage.due()
            event_us = min(events, default=None)
            output.note_due(event_us, min(clocks, default=None))
            # A stage is interrupted where something that is due is left.
            is_left = event_us is not None and event_us <= now.watermark_us
            left_us = [event_us - 1] if is_left and event_us is not None else []
            least_us = min([now.watermark_us, *stage.holds(), *left_us])
            self._send_watermark(output, level, whole_milliseconds(least_us))
        return output

    def _run_keys(
        self,
        number: int,
        stage: StageInMemory,
        task: TaskInput,
        advances: Sequence[Advance],
        output: TaskOutput,
    ) -> None:
        before, now = _instants(task, number)
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in task.rows:
            if row.dest == number:
                rows[row.key].append(row)
        for each in advances:
            some = rows.pop(each.key, [])
            if isinstance(stage, _Group):
                stage.advance(each, some, before, now, output)
            else:
                assert isinstance(stage, _Counter)
                stage.advance(each, some, before, now, output)
        assert not rows, "elements were forgotten"

    def _send_watermark(self, output: TaskOutput, level: int, watermark_us: int) -> None:
        for dest in LEVELS.get(level + 1, ()):
            output.outputs_us[dest] = min(output.outputs_us.get(dest, MAX_US), watermark_us)


def _instants(task: TaskInput, dest: int) -> tuple[Instant, Instant]:
    before_us = task.before_us.get(dest, MIN_US)
    now_us = max(before_us, task.arriving_us[dest])
    clock_us = task.clock_us if now_us < MAX_US else MAX_US
    return Instant(before_us, task.clock_us), Instant(now_us, clock_us)

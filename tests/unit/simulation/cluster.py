"""The cluster on which a simulated driver runs epochs: tasks of the world, which may be lost."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.cluster import EpochJob, EpochResult
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding
from beam_spark_runner.recovery.manifest import Manifest
from tests.unit.simulation.elements import (
    LEVELS,
    SOURCE,
    Row,
    TaskInput,
    decoded_events,
    partition_of,
    rows_of_event,
)
from tests.unit.simulation.hosts import Attempt, Moving
from tests.unit.simulation.pipeline import Pipeline
from tests.unit.simulation.storage import Answers
from tests.unit.simulation.tables import Table

Tasks = dict[tuple[int, int], Attempt]
_MAX_TRIES = 4


class Surroundings(Protocol):
    """What a driver sees of the world."""

    pipeline: Pipeline
    table: Table

    def time_us(self) -> int:
        """Return a time that never goes back."""
        ...

    def sleep(self, duration_us: int) -> None:
        """Let time pass."""
        ...

    def begin(
        self, level: int, task: TaskInput, epoch: reports_pb2.Epoch, read: tuple[int, ...]
    ) -> Attempt:
        """Begin an attempt on some host."""
        ...

    def begin_moving(self, resharding: Resharding, number: int) -> Moving:
        """Begin to make a shard on some host."""
        ...

    def note_won(self, driver: Any, manifest: Manifest) -> None:
        """Learn that a driver believes to have committed an epoch."""
        ...


class Waiting(Protocol):
    """What the cluster knows of its driver; see ``Driver``."""

    world: Surroundings
    answers: Answers
    random: Random
    faults: float
    partitions: int
    running: list[Attempt | Moving]
    ran: int
    tasks: Tasks
    doing: str

    def pause(self) -> None:
        """Let the world decide what happens before this driver goes on."""
        ...


class TaskFailedError(Exception):
    """All attempts at a task have failed."""


class SimulatedCluster:
    """See ``driving.cluster.Cluster``, as far as streaming pipelines use it."""

    def __init__(self, driver: Waiting) -> None:
        self._driver, self._world = driver, driver.world
        self.tables: Tables = NoTables()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a streaming pipeline uses Cluster.{name}")

    def scope(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()

    def machines_were_lost(self, error: BaseException) -> bool:
        return False

    def reason_of(self, error: BaseException) -> str:
        return str(error)

    def levels_after(self, error: BaseException) -> int | None:
        return None

    def run_epoch(self, job: EpochJob, source: Any) -> EpochResult:
        driver = self._driver
        driver.doing, driver.answers.doing = "job", ""
        submitted_ns = self._world.time_us() * 1_000
        mark, fed = _read(source, self._world.pipeline.sources.dests)
        driver.tasks = {}
        levels = [program.level for program in job.programs]
        for level in levels:
            self._run_level(level, levels[0], mark, fed)
        driver.ran = mark.epoch.number
        reports = [each.report for each in driver.tasks.values() if each.report is not None]
        return EpochResult(reports, submitted_ns)

    def reshard(self, resharding: Resharding) -> Sequence[NewShard]:
        self._driver.doing, self._driver.answers.doing = "move", ""
        made: list[NewShard] = []
        for number in range(len(resharding.new_shards())):
            made += self._made_shards(resharding, number)
        return made

    def _made_shards(self, resharding: Resharding, number: int) -> Sequence[NewShard]:
        for _ in range(_MAX_TRIES):
            moving = self._world.begin_moving(resharding, number)
            self._wait_for([moving], lambda moving=moving: moving.has_ended)  # type: ignore[misc]
            if moving.reports is not None:
                return moving.reports
        raise TaskFailedError

    def _wait_for(self, begun: Sequence[Attempt | Moving], is_over: Callable[[], bool]) -> None:
        self._driver.running = [*begun]
        while not is_over() and self._driver.running:
            self._driver.pause()
            self._driver.running = [each for each in begun if not each.has_ended]
        self._driver.running = []

    def _run_level(
        self, level: int, first: int, mark: reports_pb2.AttemptMark, fed: "_Fed"
    ) -> None:
        driver = self._driver
        for partition in range(driver.partitions):
            self._run_task(level, first, partition, mark, fed)
            if level > first and driver.random.random() < driver.faults:
                # The executor that has a task's rows is lost while they are read.
                lost = driver.random.randrange(driver.partitions)
                self._run_task(level - 1, first, lost, mark, fed)

    def _run_task(
        self, level: int, first: int, partition: int, mark: reports_pb2.AttemptMark, fed: "_Fed"
    ) -> None:
        driver = self._driver
        for _ in range(_MAX_TRIES):
            task, read = self._input(level, first, partition, mark, fed)
            copies = 2 if driver.random.random() < driver.faults else 1
            begun = [self._world.begin(level, task, mark.epoch, read) for _ in range(copies)]
            self._wait_for(begun, lambda begun=begun: any(each.report for each in begun))  # type: ignore[misc]
            for each in begun:
                if each.report is not None:
                    driver.tasks[level, partition] = each
                    return
                if each.overtaken is not None:
                    raise each.overtaken
        raise TaskFailedError

    def _input(
        self, level: int, first: int, partition: int, mark: reports_pb2.AttemptMark, fed: "_Fed"
    ) -> tuple[TaskInput, tuple[int, ...]]:
        driver, epoch = self._driver, mark.epoch
        read: list[Attempt] = []
        rows: list[Row] = []
        if level > first:
            read = [driver.tasks[level - 1, each] for each in range(driver.partitions)]
            rows, arriving_us = sent(read, partition, driver.partitions)
        elif level:
            arriving_us = dict.fromkeys(LEVELS[level], MAX_US)
        else:
            arriving_us = {SOURCE: mark.watermarks_us.get(SOURCE, MAX_US)}
            rows = [*fed.rows] if partition == 0 else []
        task = TaskInput(
            number=epoch.number,
            clock_us=epoch.clock_us,
            budget_us=epoch.budget_us,
            feeds_impulses=fed.has_impulse,
            before_us=dict(epoch.watermarks_us),
            arriving_us=arriving_us,
            rows=rows,
            partition=partition,
            partitions=driver.partitions,
        )
        return task, tuple(each.number for each in read)


@dataclass(frozen=True)
class _Fed:
    """What the driver gives to the first level.

    Attributes:
        rows: elements of the TestStream, for a task that reads them.
        has_impulse: whether sources begin.
    """

    rows: Sequence[Row]
    has_impulse: bool


def _read(source: Rows, dests: Sequence[int]) -> tuple[reports_pb2.AttemptMark, _Fed]:
    (_, coded), *rest = source
    elements = [value for dest, value in rest if dest == SOURCE | schema.WINDOWED]
    rows = [row for each in decoded_events(elements) for row in rows_of_event(*each, dests)]
    mark = reports_pb2.AttemptMark.FromString(coded)
    return mark, _Fed(rows, (SOURCE, b"") in rest)


def sent(
    read: Sequence[Attempt], partition: int, partitions: int
) -> tuple[list[Row], dict[int, int]]:
    """Return the rows that attempts have sent to a task, and the watermarks."""
    rows: list[Row] = []
    arriving_us: dict[int, int] = {}
    for each in read:
        assert each.output is not None
        rows += [row for row in each.output.rows if partition_of(row.key, partitions) == partition]
        for dest, watermark_us in each.output.outputs_us.items():
            arriving_us[dest] = min(watermark_us, arriving_us.get(dest, MAX_US))
    return rows, arriving_us

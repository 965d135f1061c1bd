"""Hosts with local copies of shards, and attempts at tasks on them."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding, make_shards
from beam_spark_runner.recovery.heads import Head
from beam_spark_runner.scheduling.attempts import IN_THIS_JOB, Attempts, Report, ShardReport
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.shards import Shard, open_shard
from tests.unit.simulation.elements import TaskInput, TaskOutput
from tests.unit.simulation.pipeline import Pipeline, run_task, stores
from tests.unit.simulation.storage import Deltas, KilledError

LINEAGE = "main"
_PAGES, _PAGE_BYTES = 40, 4096  # of a small local copy


@dataclass
class Host:
    """A machine.

    Attributes:
        folder: of its local copies.
        boots: how often it was started anew.
    """

    folder: Path
    boots: int = 0

    def start_anew(self, disk: str, random: Random) -> None:
        """Start it after its processes have ended.

        Args:
            disk: what has become of it: "kept"; "lost"; "torn": some pages were not written.
            random: says which.
        """
        self.boots += 1
        if disk == "lost":
            shutil.rmtree(self.folder, ignore_errors=True)
        elif disk == "torn":
            for data in self.folder.glob("*/data.mdb"):
                with data.open("r+b") as file:
                    for page in range(2, _PAGES):  # LMDB's file begins with two meta pages
                        if random.random() < 0.3:
                            file.seek(page * _PAGE_BYTES)
                            file.write(bytes(_PAGE_BYTES))


@dataclass
class Attempt:
    """One attempt at a task, which takes a step at a time.

    Attributes:
        number: random.
        host: where it runs.
        pipeline: whose.
        level: of the task.
        task: its input.
        head: of its shard.
        deltas: where it stores its own.
        read: numbers of the attempts whose rows it has read.
        output: what it has made, once it has come so far.
        report: once it has ended well.
        has_ended: well or not.
    """

    number: int
    host: Host
    pipeline: Pipeline
    level: int
    task: TaskInput
    head: Head | None
    deltas: Deltas
    read: tuple[int, ...]
    output: TaskOutput | None = None
    report: Report | None = None
    has_ended: bool = False
    _shard: Shard | None = None
    _steps: Iterator[None] = field(init=False)

    def __post_init__(self) -> None:
        self._steps = self._run()

    def step(self) -> None:
        """Go on."""
        try:
            next(self._steps)
        except StopIteration:
            self.has_ended = True
        except RunnerError:
            self._close()
        except KilledError:
            self.kill()

    def kill(self) -> None:
        """The process ends where it is; what it has on the host's disk stays as it is."""
        self.has_ended = True
        shard, self._shard = self._shard, None
        if shard is not None:
            shard._copy.txn.abort()
            shard._copy.env.close()
            os.close(shard._claim._lock)

    def _close(self) -> None:
        self.has_ended = True
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.close()

    def _run(self) -> Iterator[None]:
        if stores(self.pipeline, self.level):
            head = self.head
            self._shard = open_shard(
                self.host.folder,
                self.deltas,
                lineage=LINEAGE,
                level=self.level,
                partition=self.task.partition,
                head=None if head is None else ShardVersion(*head.delta),
            )
            yield
        self.output = run_task(self.pipeline, self.level, self._shard, self.task, self.number)
        yield
        report = self._sealed(self._shard, self.output) if self._shard is not None else None
        yield
        self._close()
        self.report = self._reported(report, self.output)

    def _sealed(self, shard: Shard, output: TaskOutput) -> ShardReport:
        head = shard.seal(ShardVersion(self.task.number, self.number))
        return ShardReport(
            epoch=0 if head is None else head.epoch,
            attempt=0 if head is None else head.attempt,
            older=tuple((each.version.epoch, each.version.attempt) for each in shard.chain[:-1]),
            next_event_us=output.next_event_us,
            next_clock_us=output.next_clock_us,
            was_interrupted=output.was_interrupted,
        )

    def _reported(self, shard: ShardReport | None, output: TaskOutput) -> Report:
        return Report(
            level=self.level,
            partition=self.task.partition,
            attempt=self.number,
            consumed={IN_THIS_JOB: Attempts.of(self.read)} if self.read else {},
            watermarks_us=output.inputs_us,
            shard=shard,
            finished=frozenset(output.finished),
        )


@dataclass
class Moving:
    """One attempt at making a new shard in a migration.

    Attributes:
        host: where it runs.
        resharding: of the migration.
        number: of the shard, see ``Resharding.new_shards``.
        report: once it has ended well.
        has_ended: well or not.
    """

    host: Host
    resharding: Resharding
    number: int
    report: NewShard | None = None
    has_ended: bool = False
    _has_begun: bool = False

    def step(self) -> None:
        """Begin; then make the shard."""
        if not self._has_begun:
            self._has_begun = True
            return
        self.has_ended = True
        try:
            shards = list(make_shards(self.resharding, [self.number]))
        except (RunnerError, KilledError):
            return
        if not any(each.problem for each in shards):
            attempt = shards[0].attempt if shards else None
            level, partition = self.resharding.new_shards()[self.number]
            self.report = NewShard(level, partition, attempt=attempt)

    def kill(self) -> None:
        """The process ends."""
        self.has_ended = True

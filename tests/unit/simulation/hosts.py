"""Hosts with local copies of shards, and attempts at tasks on them."""

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task import keyed_shards
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding, make_shards
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.recovery.sweep import table_rows_name
from beam_spark_runner.scheduling.attempts import (
    IN_THIS_JOB,
    Attempts,
    KeyedReport,
    Report,
    ShardReport,
    TableRowsReport,
)
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import OvertakenError
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.loaded_packs import PackCache
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState
from tests.unit.simulation import looked
from tests.unit.simulation.elements import LEVELS, LOOKED, SOURCE, TaskInput, TaskOutput
from tests.unit.simulation.pipeline import Pipeline, run_task, stores
from tests.unit.simulation.state_stores import ADDRESS
from tests.unit.simulation.steps import Steps, pause
from tests.unit.simulation.storage import Deltas, KilledError
from tests.unit.state.sorted_records import count_values

LINEAGE = "main"
_CACHE_BYTES = 3_000  # of a few keys of the partitions of a host
_PAGES, _PAGE_BYTES = 40, 4096  # of a small local copy


def places(*, has_store: bool) -> ShardLocations:
    """Return where shards are, and whether keys are in the state store."""
    return ShardLocations(
        lineage=LINEAGE,
        deltas="",
        local=None,
        key_groups=KEY_GROUPS,
        state_store=ADDRESS if has_store else None,
        pack_cache_bytes=_CACHE_BYTES,
    )


@dataclass
class Host:
    """A machine.

    Attributes:
        folder: of its local copies.
        boots: how often it was started anew.
        packs: what tasks in its processes have read from the state store.
    """

    folder: Path
    boots: int = 0
    packs: PackCache = field(default_factory=PackCache)

    def start_anew(self, disk: str, random: Random) -> None:
        """Start it after its processes have ended.

        Args:
            disk: what has become of it: "kept"; "lost"; "torn": some pages were not written.
            random: says which.
        """
        self.boots += 1
        self.packs = PackCache()
        if disk == "lost":
            shutil.rmtree(self.folder, ignore_errors=True)
        elif disk == "torn":
            for data in self.folder.glob("*/data.mdb"):
                with data.open("r+b") as file:
                    for page in range(2, _PAGES):  # LMDB's file begins with two meta pages
                        if random.random() < 0.3:
                            file.seek(page * _PAGE_BYTES)
                            file.write(bytes(_PAGE_BYTES))
            for kept in self.folder.glob("*/*.keyed"):
                if random.random() < 0.3:
                    os.truncate(kept, random.randrange(kept.stat().st_size))


@dataclass
class Attempt:
    """One attempt at a task, which takes a step at a time.

    Attributes:
        number: random.
        host: where it runs.
        pipeline: whose.
        level: of the task.
        task: its input.
        epoch: as its driver describes it.
        deltas: where it stores its own.
        read: numbers of the attempts whose rows it has read.
        killed: those that were killed, which must not be garbage as long as others run.
        output: what it has made, once it has come so far.
        report: once it has ended well.
        overtaken: the error, if the state store is ahead of the epoch.
        has_ended: well or not.
    """

    number: int
    host: Host
    pipeline: Pipeline
    level: int
    task: TaskInput
    epoch: reports_pb2.Epoch
    deltas: Deltas
    read: tuple[int, ...]
    killed: "list[Attempt]"
    output: TaskOutput | None = None
    report: Report | None = None
    overtaken: OvertakenError | None = None
    has_ended: bool = False
    _shard: Shard | None = None
    _keyed: Mapping[StageId, KeyedShard] = field(default_factory=dict)
    _opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self._steps = Steps(self._run)

    def step(self) -> None:
        """Go on."""
        try:
            self._steps.go_on()
        except RunnerError as error:
            self.overtaken = error if isinstance(error, OvertakenError) else None
            self._close()
        except KilledError:
            self.kill()
        if self._steps.has_ended:
            self.has_ended = True

    def kill(self) -> None:
        """The process ends where it is; what it has on the host's disk stays as it is."""
        if self.has_ended:
            return
        self.has_ended = True
        self._steps.leave()
        self.killed.append(self)
        if self._shard is not None:
            self._shard._copy.txn.abort()
            self._shard._copy.env.close()
            os.close(self._shard._claim._lock)
            if self._shard._writer is not None:
                self._shard._writer._file.raw.close()  # what is in its buffer is lost
        for each in self._keyed.values():
            if (file := each._overlay._file) is not None:
                file._env.close()
                os.close(file._folder.lock)
                each._overlay._file = None

    def bury(self) -> None:
        """Free the memory of an attempt that was killed."""
        with contextlib.suppress(Exception):
            self._steps.kill()
        self._opened.pop_all()

    def _close(self) -> None:
        self.has_ended = True
        self._opened.close()

    def _run(self) -> None:
        if stores(self.pipeline, self.level):
            self._open()
            pause()
            self.output = self._processed(self._stores_of)
        else:
            self.output = self._processed(None)
        pause()
        report = self._sealed(self._shard, self.output) if self._shard is not None else None
        pause()
        self._close()
        self.report = self._reported(report, self.output)

    def _open(self) -> None:
        heads = {(each.level, each.partition): each for each in self.epoch.heads}
        head = heads.get((self.level, self.task.partition))
        shard = open_shard(
            self.host.folder,
            self.deltas,
            lineage=LINEAGE,
            level=self.level,
            partition=self.task.partition,
            head=None if head is None else ShardVersion(head.epoch, head.attempt),
        )
        self._shard = self._opened.enter_context(shard)
        keyed = keyed_shards.open_keyed_shards(
            self._program(), self.epoch, self.task.partition, self.host.packs
        )
        self._keyed = self._opened.enter_context(keyed)

    def _program(self) -> Any:
        """Return as much of the program as the opening of keys looks at."""
        return SimpleNamespace(
            shards=places(has_store=bool(self.epoch.namespace)),
            stages=[
                SimpleNamespace(
                    stage=stage,
                    name=f"stage {stage}",
                    in_epochs=SimpleNamespace(may_be_in_state_store=stage != SOURCE),
                )
                for stage in LEVELS[self.level]
            ],
            partitions=self.task.partitions,
            limits=SimpleNamespace(harnesses=None),
        )

    def _processed(self, stores_of: Callable[[int], Sequence[StoredState]] | None) -> TaskOutput:
        return run_task(self.pipeline, self.level, stores_of, self.task, self.number)

    def _stores_of(self, stage: int) -> list[StoredState]:
        """Return what is stored of a stage; that of its keys is the last."""
        counts = looked.counts() if stage == LOOKED and self.pipeline.looks_up else count_values
        assert self._shard is not None
        stores = [StoredState(self._shard, stage, counts)]
        if (keyed := self._keyed.get(StageId(stage))) is not None:
            state = StoredState(
                keyed.records,
                0,
                counts,
                lists_holds=True,
                own_transform=self.pipeline.transforms.get(stage, ""),
                ask=keyed.records.ask,
                ask_due=None if stage == LOOKED else keyed.records.ask_values,
                ask_records=keyed.records.ask_records,
                batches=keyed.batches if stage == LOOKED else None,
            )
            stores.append(state)
        return stores

    def _sealed(self, shard: Shard, output: TaskOutput) -> ShardReport:
        version = ShardVersion(self.task.number, self.number)
        keyed = tuple(
            _keyed_report(self.epoch.stores[stage], each.seal(version))
            for stage, each in self._keyed.items()
        )
        head = shard.seal(version)
        return ShardReport(
            epoch=0 if head is None else head.epoch,
            attempt=0 if head is None else head.attempt,
            older=tuple((each.version.epoch, each.version.attempt) for each in shard.chain[:-1]),
            next_event_us=output.next_event_us,
            next_clock_us=output.next_clock_us,
            was_interrupted=output.was_interrupted,
            keyed=keyed,
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
            table_rows=self._rows_for_table(output),
        )

    def _rows_for_table(self, output: TaskOutput) -> tuple[TableRowsReport, ...]:
        """Store what the sources have given, in a file for the table."""
        if self.level or not output.rows:
            return ()
        name = table_rows_name(LINEAGE, self.task.number, SOURCE, f"{self.number:x}")
        self.deltas.files.create(name, b"")
        return (TableRowsReport(SOURCE, name, len(output.rows)),)


def _keyed_report(number: int, head: KeyedHead) -> KeyedReport:
    epoch, attempt = (0, 0) if head.own is None else head.own.delta
    older = () if head.own is None else head.own.older
    return KeyedReport(number, epoch, attempt, older, needs_parts=bool(head.parts))


@dataclass
class Moving:
    """One attempt at making a new shard in a migration.

    Attributes:
        host: where it runs.
        resharding: of the migration.
        number: of the shard, see ``Resharding.new_shards``.
        reports: what it has made, once it has ended well.
        has_ended: well or not.
    """

    host: Host
    resharding: Resharding
    number: int
    reports: Sequence[NewShard] | None = None
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
            self.reports = shards

    def kill(self) -> None:
        """The process ends."""
        self.has_ended = True

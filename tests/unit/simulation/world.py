"""The simulated world: drivers, hosts, one storage, and what must be true after each step."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.engine.task import keyed_shards, shard_copying
from beam_spark_runner.engine.task.shard_copying import Resharding
from beam_spark_runner.recovery.driver_start import KEPT
from beam_spark_runner.recovery.manifest import Manifest, decode, epoch_in, fence_in
from beam_spark_runner.scheduling.test_stream_events import Elements, End, not_played
from beam_spark_runner.state import local_copy
from tests.unit.simulation.committed import Committed
from tests.unit.simulation.driver import Driver
from tests.unit.simulation.elements import (
    LEVELS,
    SOURCE,
    Row,
    TaskInput,
    TaskOutput,
    partition_of,
    rows_of_event,
)
from tests.unit.simulation.hosts import LINEAGE, Attempt, Host, Moving
from tests.unit.simulation.pipeline import PARTITIONS, TAG, Pipeline
from tests.unit.simulation.reference import Reference
from tests.unit.simulation.state_stores import StateStores
from tests.unit.simulation.steps import pause
from tests.unit.simulation.storage import Answers, Deltas, Files
from tests.unit.simulation.tables import Table

MAX_DRIVERS = 3
MAX_PARTITIONS = 4
_HOSTS = 2
_STEP_US = 5_000
_LONGEST_SLEEP_US = 60_000_000
_MAX_STEPS = 50_000
_PAUSES = 0.1  # probability that something else happens before the state store answers


class World:
    """All of it. What happens follows from the seed and from the calls.

    Args:
        pipeline: that drivers run.
        seed: of all that is drawn.
        folder: empty; for the local copies of hosts.
        faults: probability of faults within Spark jobs.

    Attributes:
        steps: how many were taken.
        chain: the manifests that were committed.
        ends: how many drivers have ended, by why.
        table: into which it streams.
        left: how many records of the declarative step committed epochs have left.
    """

    def __init__(self, pipeline: Pipeline, seed: int, folder: Path, faults: float = 0.05) -> None:
        self.pipeline, self.faults = pipeline, faults
        self.steps = 0
        self.chain: list[Manifest] = []
        self.drivers: list[Driver] = []
        self.hosts = [Host(folder / f"host{number}") for number in range(_HOSTS)]
        self.files = Files()
        self.files.on_created, self.files.on_deleted = self._created, self._deleted
        self.deltas = Deltas(self.files)
        self.table = Table(self.files)
        self._committed = Committed(folder / "oracle", self.files, self.deltas)
        self.strays: list[Attempt | Moving] = []  # attempts for which nobody waits
        self._folder, self._random = folder, Random(seed)
        self._now_us = 1_000_000_000
        self._acting: Driver | None = None  # that asks for something now
        self._reference = Reference(pipeline)
        self._emitted = 0
        self.left = 0
        self._at = self.hosts[0]  # where code runs now
        self._killed: list[Attempt] = []
        self.state_stores = StateStores(self._maybe_pause)
        self._has_store = seed % 2 == 1
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(shard_copying, "folder_of_epochs", lambda _: self.deltas)
        self._patch.setattr(shard_copying, "folder_of_copies", lambda _: self._at.folder)
        self._patch.setattr(keyed_shards, "folder_of_epochs", lambda _: self.deltas)
        self._patch.setattr(keyed_shards, "scratch_folder", lambda _: self._scratch())
        self._patch.setattr(keyed_shards, "key_store", self.state_stores.key_store)
        self._patch.setattr(
            local_copy, "boot_id", lambda: f"{self.hosts.index(self._at)}.{self._at.boots}"
        )

    def close(self) -> None:
        """Let go of everything."""
        for each in [*self.strays, *(run for driver in self.drivers for run in driver.running)]:
            each.kill()
        for driver in self.drivers:
            driver.kill()
        for killed in self._killed:
            killed.bury()
        self._patch.undo()
        shutil.rmtree(self._folder)

    # What happens.

    @property
    def is_done(self) -> bool:
        """Whether the pipeline has come to its end."""
        return bool(self.chain) and self.chain[-1].is_final

    def start(self, partitions: int | None = None, *, changes_store: bool = False) -> Driver:
        """Start the program.

        Args:
            partitions: how many it has; None: as many as the previous one.
            changes_store: it has a state store if the previous one had none, or the reverse.
        """
        answers = Answers(self.files, Random(self._random.random()))
        random = Random(self._random.random())
        if partitions is None:
            partitions = self.chain[-1].partitions if self.chain else PARTITIONS
        if self.chain and not self.chain[-1].is_final:
            self._has_store = bool(self.chain[-1].namespace)
        has_store = self._has_store != changes_store
        namespaces = self.state_stores if has_store else None
        driver = Driver(self, answers, random, self.faults, len(self.chain), partitions, namespaces)
        self.drivers.append(driver)
        return driver

    def step(self) -> None:
        """Let a driver go on that is not paused."""
        awake = [driver for driver in self.drivers if not driver.is_paused]
        self.step_of(self._random.choice(awake) if awake else self.start())

    def step_of(self, driver: Driver) -> None:
        """Let a driver go on, or an attempt for which it waits."""
        self._count()
        running = [each for each in driver.running if not each.has_ended]
        if running:
            self._step_attempt(self._random.choice(running))
            # It learns of the end of a task with the next step.
            if not any(each.has_ended for each in driver.running):
                return
        begun = list(driver.running)
        self._acting = driver
        driver.step()
        self._acting = None
        self.strays += [each for each in begun if not each.has_ended and each not in driver.running]
        if driver.end:
            self._check_end(driver)
            self.drivers.remove(driver)

    def step_stray(self) -> None:
        """Let an attempt go on for which nobody waits any more."""
        if self.strays:
            self._count()
            stray = self._random.choice(self.strays)
            self._step_attempt(stray)
            if stray.has_ended:
                self.strays.remove(stray)

    def kill(self, driver: Driver) -> None:
        """A driver dies. Its tasks do not know it yet."""
        self._count()
        self.drivers.remove(driver)
        self.strays += [each for each in driver.running if not each.has_ended]
        driver.kill()

    def kill_attempt(self) -> None:
        """The process of a task dies."""
        if running := self._running():
            self._count()
            self._random.choice(running).kill()
            self.strays = [each for each in self.strays if not each.has_ended]

    def restart_host(self, disk: str) -> None:
        """A host is started anew. ``disk``: see ``Host.start_anew``."""
        self._count()
        host = self._random.choice(self.hosts)
        for each in self._running():
            if each.host is host:
                each.kill()
        self.strays = [each for each in self.strays if not each.has_ended]
        host.start_anew(disk, self._random)

    def jump(self, driver: Driver, by_us: int) -> None:
        """The clock of a driver's machine is set."""
        self._count()
        driver.skew_us += by_us

    def finish(self) -> None:
        """Without further disturbance the pipeline comes to its end, and no file is left over."""
        for driver in list(self.drivers):
            self.kill(driver)
        for each in self.strays:
            each.kill()
        self.strays, self.faults, self.deltas.fault = [], 0.0, ""
        first, driver = self.steps, self.start()
        while driver in self.drivers:
            self.step_of(driver)
            assert self.steps - first < _MAX_STEPS, "the pipeline does not come to its end"
        assert driver.end == "done", driver.end
        assert self.is_done
        self.table.check(self.chain)
        self._check_files()
        assert self.state_stores.is_empty(self.chain[-1].namespace), "a key is left in the store"

    # What drivers see: ``Surroundings``.

    def time_us(self) -> int:
        return self._now_us

    def sleep(self, duration_us: int) -> None:
        self._now_us += min(duration_us, _LONGEST_SLEEP_US)

    def begin(
        self, level: int, task: TaskInput, epoch: reports_pb2.Epoch, read: tuple[int, ...]
    ) -> Attempt:
        usual = self.hosts[(level + task.partition) % len(self.hosts)]
        is_usual = self._random.random() < 0.9
        host = usual if is_usual else self._random.choice(self.hosts)
        number = self._random.getrandbits(63)
        return Attempt(
            number, host, self.pipeline, level, task, epoch, self.deltas, read, self._killed
        )

    def begin_moving(self, resharding: Resharding, number: int) -> Moving:
        return Moving(self._random.choice(self.hosts), resharding, number)

    def note_won(self, driver: Driver, manifest: Manifest) -> None:
        assert self.chain[manifest.epoch - 1] == manifest, "two drivers have committed an epoch"

    # What must be true.

    def _count(self) -> None:
        self.steps += 1
        self._now_us += _STEP_US

    def _running(self) -> list[Attempt | Moving]:
        every = [*self.strays, *(each for driver in self.drivers for each in driver.running)]
        return [each for each in every if not each.has_ended]

    def _step_attempt(self, attempt: Attempt | Moving) -> None:
        self._at = attempt.host
        attempt.step()

    def _scratch(self) -> Path:
        self._at.folder.mkdir(parents=True, exist_ok=True)
        return self._at.folder

    def _maybe_pause(self) -> None:
        """Let something else happen before the state store answers, sometimes."""
        if self._random.random() < _PAUSES:
            pause()

    def _check_end(self, driver: Driver) -> None:
        fences = [fence for name in self.files.content if (fence := fence_in(name))]
        match driver.end:
            case "done":
                assert self.is_done
            case "fenced":
                assert max(fences) > driver.answers.fence
            case "storage" if not driver.answers.has_failed:
                # What it has found in a list was gone: others go on without it.
                is_behind = len(self.chain) >= driver.began + KEPT
                assert is_behind or max(fences) > driver.answers.fence > 0

    def _created(self, name: str) -> None:
        epoch = epoch_in(name, LINEAGE)
        # Others may have deleted it long ago: then it commits nothing.
        if epoch is None or epoch <= len(self.chain):
            return
        manifest = decode(self.files.content[name], name)
        assert epoch == len(self.chain) + 1
        if self.chain:
            last = self.chain[-1]
            assert not last.is_final or last.unwritten  # that it was written is noted
            assert manifest.parent == last.epoch
            assert manifest.fence >= last.fence
            assert manifest.clock_us >= last.clock_us, "processing time has gone back"
            for dest, watermark_us in last.watermarks_us.items():
                assert manifest.watermarks_us[dest] >= watermark_us, "a watermark has gone back"
            if bool(last.namespace) == bool(manifest.namespace):
                assert last.namespace == manifest.namespace, "the store was ahead without reason"
        before_us = self.chain[-1].watermarks_us if self.chain else {}
        self.state_stores.note_moment()
        self.chain.append(manifest)
        driver = self._acting
        assert driver is not None
        if driver.ran == manifest.epoch:
            self._check_epoch(manifest, driver.tasks, dict(before_us))
        else:  # a migration, or an empty epoch that supersedes files of another start
            self._check_migration(manifest)
        for needed in self._committed.needed(self.chain[-KEPT:]):
            assert needed in self.files.content, "a delta is missing"
        if manifest.is_final:
            assert self._reference.is_empty(), "the pipeline has ended with something left"
            self._committed.check_empty(manifest)

    def _check_migration(self, manifest: Manifest) -> None:
        """Nothing has happened, and each restriction is in one place."""
        before = self.chain[-2]
        assert manifest.metrics == before.metrics
        assert manifest.watermarks_us == before.watermarks_us
        assert (manifest.next_event_us, manifest.next_clock_us) == (
            before.next_event_us,
            before.next_clock_us,
        )
        slices = self._committed.slices(manifest)
        self._reference.move(manifest.partitions, slices)

    def _check_epoch(
        self,
        manifest: Manifest,
        tasks: Mapping[tuple[int, int], Attempt],
        before_us: dict[int, int],
    ) -> None:
        """The outputs of an epoch are those of the undisturbed run."""
        partitions = manifest.partitions
        if manifest.epoch == 1:
            self._reference.begin_with(partitions)
        outputs: list[TaskOutput] = []
        for level in sorted({level for level, _ in tasks}):  # others have finished
            before, outputs = outputs, []
            for partition in range(partitions):
                attempt = tasks[level, partition]
                rows, arriving_us = self._input(manifest, level, partition, before)
                assert attempt.output is not None
                assert sorted(attempt.task.rows) == sorted(rows)
                assert attempt.task.arriving_us == arriving_us
                assert attempt.task.before_us == before_us
                if self.pipeline.has_no_late_elements:
                    for row in rows:
                        assert row.time_us >= before_us.get(row.dest, MIN_US), "a row is late"
                output = self._reference.run_task(
                    level,
                    attempt.task,
                    attempt.number,
                    attempt.output.advances,
                    attempt.output.was_interrupted,
                    attempt.output.done,
                    attempt.output.left,
                )
                assert attempt.output.comparable() == output.comparable()
                outputs.append(output)
                self._emitted += len(output.emitted)
                self.left += len(output.left)
        assert manifest.metrics == (b"%d" % self._emitted,), "outputs are counted twice"

    def _input(
        self, manifest: Manifest, level: int, partition: int, before: list[TaskOutput]
    ) -> tuple[list[Row], dict[int, int]]:
        partitions = manifest.partitions
        if level:
            rows = [row for output in before for row in output.rows]
            dests = LEVELS[level]
            return [row for row in rows if partition_of(row.key, partitions) == partition], {
                dest: min((output.outputs_us[dest] for output in before), default=MAX_US)
                for dest in dests
            }
        return self._fed(manifest, partition)

    def _fed(self, manifest: Manifest, partition: int) -> tuple[list[Row], dict[int, int]]:
        """Return what a task of the first level gets in an epoch, and its watermark."""
        if self.pipeline.events is None:
            return [], {SOURCE: MAX_US}
        events = [*self.pipeline.events, End()]
        before = self.chain[-2].events if len(self.chain) > 1 else 0
        rows: list[Row] = []
        played = not_played([TAG])
        for event in events[: manifest.events]:
            played = played.after(event)
        for event in events[before : manifest.events]:
            if isinstance(event, Elements) and partition == 0:
                rows += [
                    row
                    for element in event.elements
                    for row in rows_of_event(*element, self.pipeline.sources.dests)
                ]
        return rows, {SOURCE: played.watermarks_us[TAG]}

    def _deleted(self, name: str) -> None:
        kept = self.chain[-KEPT:]
        assert name not in self._committed.needed(kept), "a delta was deleted that is needed"
        assert epoch_in(name, LINEAGE) not in [each.epoch for each in kept]

    def _check_files(self) -> None:
        """Only what the kept manifests need is left, and what was rejected lately."""
        kept = self.chain[-KEPT:]
        needed = self._committed.needed(kept)
        manifests = {each for each in self.files.content if epoch_in(each, LINEAGE) is not None}
        assert len(manifests) == min(KEPT, len(self.chain))
        for name in self.files.content.keys() - needed - manifests:
            if name.endswith(".fence"):
                continue
            parts = name.lstrip(".").split("-")
            epoch = parts[1] if name.endswith(".table") else parts[3]
            assert int(epoch) > kept[0].epoch, f"{name} is left over"

"""A driver: the loop of ``spark.driver.streaming``, which takes a step at a time."""

import copy
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.epoch_manifest import manifest_after, progress_of
from beam_spark_runner.driving.migration import (
    heads_of,
    migration_after,
    resharding_after,
)
from beam_spark_runner.driving.playback import KnownEvents, Playback
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.resharding import Resharding
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.manifest import FencedError, Head, Manifest
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import Accepted, judge
from beam_spark_runner.scheduling.epochs import (
    Epoch,
    next_timed_epoch,
    wait_us,
)
from beam_spark_runner.scheduling.playback import Elements, End, not_played
from tests.unit.simulation.elements import (
    COUNTED,
    GROUPED,
    LEVELS,
    SOURCE,
    Row,
    TaskInput,
    partition_of,
)
from tests.unit.simulation.hosts import LINEAGE, Attempt, MadeShard, Moving
from tests.unit.simulation.pipeline import (
    BUDGET_US,
    TAG,
    Pipeline,
    finishing,
)
from tests.unit.simulation.storage import Answers, PausedError, StorageError

T = TypeVar("T")
Steps = Iterator[None]
Asks = Generator[None, None, bool]
Tasks = dict[tuple[int, int], Attempt]
_SEGMENT = SegmentId(0)
_MOST_TRIES = 4
_SLOWNESS = 10  # how much slower than time a clock may be that was set back
_PAUSE = 0.4  # probability of a pause after a step in which there may be one


_PLACES = ShardLocations(lineage=LINEAGE, deltas="", local=None, key_groups=KEY_GROUPS)


@dataclass(frozen=True)
class Made:
    """A manifest that a driver is about to commit, and of what it was made.

    Attributes:
        manifest: what it commits.
        epoch: what the epoch has begun with; None: it is a migration.
        tasks: the attempts that were accepted, by level and partition.
    """

    manifest: Manifest
    epoch: Epoch | None
    tasks: Mapping[tuple[int, int], Attempt]


class Cluster(Protocol):
    """What a driver sees of the world."""

    pipeline: Pipeline

    def clock_us(self, driver: "Driver") -> int:
        """Return what the clock of a driver's machine shows."""
        ...

    def sleep(self, duration_us: int) -> None:
        """Let time pass."""
        ...

    def begin(
        self, level: int, task: TaskInput, head: Head | None, read: tuple[int, ...]
    ) -> Attempt:
        """Begin an attempt on some host."""
        ...

    def begin_moving(self, resharding: Resharding, number: int) -> Moving:
        """Begin to make a shard on some host."""
        ...

    def note_made(self, made: Made) -> None:
        """Learn what a manifest stands for before it is committed."""
        ...

    def note_won(self, driver: "Driver", manifest: Manifest) -> None:
        """Learn that a driver believes to have committed an epoch."""
        ...


@dataclass
class Driver:
    """One start of the program.

    Attributes:
        answers: its storage.
        random: for what happens inside its Spark jobs.
        faults: probability of faults there.
        began: how many epochs were committed before it.
        partitions: of each level.
        skew_us: by which its clock is wrong.
        is_paused: it does nothing until it is woken.
        doing: "start", "sweep", "move", "job" or "commit".
        pauses_in: in the midst of which of these it will pause.
        running: attempts for which it waits.
        start: what it knows; None: it has not started yet.
        end: why it has ended: "done", "fenced", "storage", "gave up"; empty: it has not.
    """

    cluster: Cluster
    answers: Answers
    random: Random
    faults: float
    began: int
    partitions: int
    skew_us: int = 0
    is_paused: bool = False
    doing: str = "start"
    pauses_in: str = ""
    running: list[Attempt | Moving] = field(default_factory=list)
    start: DriverStart | None = None
    end: str = ""
    _result: object = None  # of what was done last
    _levels: range = range(0)  # that the epoch runs

    def __post_init__(self) -> None:
        self._steps = self._run()
        self._version = self.cluster.pipeline.version
        events = self.cluster.pipeline.events
        self._playback: Playback | None = None
        if events is not None:
            known = KnownEvents([*events, End()])
            self._playback = Playback(known, [TAG], "Events", lambda: None)

    def step(self) -> None:
        """Go on; not while attempts run."""
        try:
            next(self._steps)
            if self.doing == self.pauses_in and self.random.random() < _PAUSE:
                self.is_paused, self.pauses_in = True, ""
        except StopIteration:
            self.end = self.end or "done"
        except FencedError:
            self.end = "fenced"
        except StorageError:
            self.end = "storage"

    def _run(self) -> Steps:
        checkpoints = Checkpoints(
            storage=self.answers, lineage=LINEAGE, restart="auto", key_groups=128
        )
        yield from self._ask(lambda _: DriverStart(checkpoints, self._version, self.partitions))
        assert isinstance(self._result, DriverStart)
        self.start = self._result
        self.doing = "sweep"
        yield from self._ask(lambda start: start.sweep())
        if not (yield from self._migrated()):
            self.end = "gave up"
            return
        while True:
            self.doing = "job"
            yield from self._next()
            epoch = self._result
            if not isinstance(epoch, Epoch):
                return
            if not (yield from self._accepted(epoch)):
                self.end = "gave up"
                return
            mine, self.doing = self._made(epoch), "commit"
            yield from self._ask(lambda start, mine=mine: start.commit(mine))  # type: ignore[misc]
            committed: object = self._result
            if committed == mine:
                self.cluster.note_won(self, mine)
            self.doing = "sweep"
            yield from self._ask(lambda start: start.sweep())

    def _migrated(self) -> Asks:
        """Go on with another number of partitions, if the last run had another; False: gave up."""
        assert self.start is not None
        while (last := self.start.manifest).partitions != self.partitions and not last.is_final:
            self.doing = "move"
            splittable = {SOURCE}
            resharding = resharding_after(last, self._version, _PLACES, self.partitions, splittable)
            made: list[tuple[int, int, int]] = []
            for number in range(len(resharding.new_shards())):
                shard = yield from self._made_shard(resharding, number)
                if shard is None:
                    return False
                if shard.attempt is not None:
                    made.append((shard.level, shard.partition, shard.attempt))
            mine = migration_after(
                last,
                self._version,
                finishing(self.partitions),
                heads_of(resharding, made),
                self.partitions,
            )
            self.cluster.note_made(Made(mine, None, {}))
            self.doing = "commit"
            yield from self._ask(lambda start, mine=mine: start.commit(mine))  # type: ignore[misc]
            committed: object = self._result
            if committed == mine:
                self.cluster.note_won(self, mine)
        return True

    def _made_shard(
        self, resharding: Resharding, number: int
    ) -> Generator[None, None, MadeShard | None]:
        for _ in range(_MOST_TRIES):
            moving = self.cluster.begin_moving(resharding, number)
            self.running = [moving]
            while not moving.has_ended:
                yield
            self.running = []
            if moving.report is not None:
                return moving.report
        return None

    def _ask(self, act: Callable[[DriverStart], object]) -> Steps:
        """Begin an act again and again, until all its questions have been answered."""
        self.answers.begin(anew=True)
        while True:
            start = copy.copy(self.start)
            try:
                self._result = act(start)  # type: ignore[arg-type]  # it is None at the beginning
            except PausedError:
                yield
                self.answers.begin(anew=False)
                continue
            self.start = start
            return

    def _next(self) -> Steps:
        assert self.start is not None
        progress = progress_of(self.start.manifest)
        if self._playback is not None:
            self._result = self._playback.next_epoch(progress)
            return
        since_us = self.cluster.clock_us(self) - self.skew_us
        delay_us = max(0, (progress.next_clock_us or 0) - progress.clock_us)
        slept_us = 0
        while True:
            now_us = self.cluster.clock_us(self)
            epoch = self._result = next_timed_epoch(progress, now_us)
            passed_us = now_us - self.skew_us - since_us
            left_us = 0
            if epoch is not None:
                left_us = wait_us(progress, epoch, now_us, 0, passed_us=passed_us)
            if not left_us:
                return
            slept_us += left_us
            assert slept_us <= _SLOWNESS * delay_us, "a clock that was set stops the pipeline"
            self.cluster.sleep(left_us)
            yield

    def _accepted(self, epoch: Epoch) -> Asks:
        """Run the epoch until its tasks have worked on the same data; False: it gave up."""
        assert self.start is not None
        levels = self._levels = finishing(self.partitions).levels(self.start.manifest.finished)
        order = segments.SegmentOrder({_SEGMENT: frozenset()})
        action = order.start()
        while isinstance(action, segments.Run):
            self._tasks: Tasks = {}
            for level in levels:
                if not (yield from self._run_level(level, epoch)):
                    return False
            reports = [each.report for each in self._tasks.values() if each.report is not None]
            verdict = judge(reports, dict.fromkeys(levels, self.partitions), first=levels[0])
            is_good = isinstance(verdict, Accepted)
            event = segments.Ran(_SEGMENT) if is_good else segments.Rejected(_SEGMENT, "mixed")
            action = order.on(event)
        return isinstance(action, segments.Finish)

    def _run_level(self, level: int, epoch: Epoch) -> Asks:
        for partition in range(self.partitions):
            if not (yield from self._run_task(level, partition, epoch)):
                return False
            if level > self._levels[0] and self.random.random() < self.faults:
                # The executor that has a task's rows is lost while they are read.
                lost = self.random.randrange(self.partitions)
                if not (yield from self._run_task(level - 1, lost, epoch)):
                    return False
        return True

    def _run_task(self, level: int, partition: int, epoch: Epoch) -> Asks:
        assert self.start is not None
        head = self.start.manifest.heads.get((level, partition))
        for _ in range(_MOST_TRIES):
            task, read = self._input(level, partition, epoch)
            copies = 2 if self.random.random() < self.faults else 1
            begun = [self.cluster.begin(level, task, head, read) for _ in range(copies)]
            self.running = [*begun]
            while not any(each.report for each in begun) and self.running:
                yield
                self.running = [each for each in begun if not each.has_ended]
            self.running = []
            for each in begun:
                if each.report is not None:
                    self._tasks[level, partition] = each
                    return True
        return False

    def _input(self, level: int, partition: int, epoch: Epoch) -> tuple[TaskInput, tuple[int, ...]]:
        assert self.start is not None
        last = self.start.manifest
        read: list[Attempt] = []
        if level > self._levels[0]:
            read = [self._tasks[level - 1, each] for each in range(self.partitions)]
            rows, arriving_us = sent(read, partition, self.partitions)
        elif level:
            rows, arriving_us = [], dict.fromkeys(LEVELS[level], MAX_US)
        else:
            rows, arriving_us = fed(self.cluster.pipeline, epoch, partition)
        task = TaskInput(
            number=epoch.number,
            clock_us=epoch.clock_us,
            budget_us=BUDGET_US,
            feeds_impulses=epoch.feeds_impulses,
            before_us=last.watermarks_us,
            arriving_us=arriving_us,
            rows=rows,
            partition=partition,
            partitions=self.partitions,
        )
        return task, tuple(each.number for each in read)

    def _made(self, epoch: Epoch) -> Manifest:
        assert self.start is not None
        last = self.start.manifest
        count = sum(map(int, last.metrics)) + sum(
            len(each.output.emitted) for each in self._tasks.values() if each.output is not None
        )
        mine = manifest_after(
            last,
            epoch,
            [each.report for each in self._tasks.values() if each.report is not None],
            metrics=(b"%d" % count,),
            lags=(),
            finishing=finishing(self.partitions),
        )
        self.cluster.note_made(Made(mine, epoch, dict(self._tasks)))
        return mine


def sent(read: list[Attempt], partition: int, partitions: int) -> tuple[list[Row], dict[int, int]]:
    """Return the rows that attempts have sent to a task, and the watermarks."""
    rows: list[Row] = []
    arriving_us: dict[int, int] = {}
    for each in read:
        assert each.output is not None
        rows += [row for row in each.output.rows if partition_of(row.key, partitions) == partition]
        for dest, watermark_us in each.output.outputs_us.items():
            arriving_us[dest] = min(watermark_us, arriving_us.get(dest, MAX_US))
    return rows, arriving_us


def fed(pipeline: Pipeline, epoch: Epoch, partition: int) -> tuple[list[Row], dict[int, int]]:
    """Return what a task of the first level gets in an epoch, and its watermark."""
    if pipeline.events is None:
        return [], {SOURCE: MAX_US}
    rows: list[Row] = []
    if isinstance(epoch.event, Elements) and partition == 0:
        for coded, time_us in epoch.event.elements:
            key, value = coded.decode().split(":")
            rows += [Row(dest, key, int(value), time_us) for dest in (GROUPED, COUNTED)]
    played = not_played([TAG])
    for event in [*pipeline.events, End()][: epoch.events]:
        played = played.after(event)
    return rows, {SOURCE: played.watermarks_us[TAG]}

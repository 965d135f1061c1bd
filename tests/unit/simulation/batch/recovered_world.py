"""The simulated world of a bounded pipeline whose driver dies: later starts continue it.

Starts of the driver use one folder. Each goes on in steps, as the only one or while an earlier one
wakes up, which may have tasks that still run.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import CheckpointStorageError, LostRowsError, SparkJobError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.cluster import LevelsJob, LevelsResult
from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.stored_segments import StoredSegments, Surroundings
from beam_spark_runner.engine.program import BatchPart, LevelProgram, SideInputRows
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.recovery.batch_start import (
    ENDED,
    SUBMISSION,
    BatchStart,
    remove_ended,
    remove_leftovers,
)
from beam_spark_runner.recovery.finishes import Finish, encode_record
from beam_spark_runner.recovery.manifest import FencedError, fence_in
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.storage.folder import Settings
from tests.unit.simulation.batch.cluster import SimulatedCluster
from tests.unit.simulation.batch.job_folder import DriverAnswers, SimulatedFolder, StoredFolders
from tests.unit.simulation.batch.oracle import attempts_in, check
from tests.unit.simulation.batch.pipelines import BoundedPipeline
from tests.unit.simulation.batch.rows import (
    ClusterError,
    Made,
    Mark,
    Partition,
    Stored,
    StoredRows,
)
from tests.unit.simulation.batch.world import BatchWorld
from tests.unit.simulation.steps import Steps, pause

_MAX_STEPS = 40_000


class FolderCluster(SimulatedCluster):
    """A cluster that reads what tasks have stored in the folder of the job.

    Args:
        world: See ``SimulatedCluster``.
        folders: What is stored.
        may_miss: Returns whether rows may be missing: another start, or somebody else, may have
            removed them.
    """

    def __init__(self, world: Any, folders: StoredFolders, may_miss: Callable[[], bool]) -> None:
        super().__init__(world)
        self._folders, self._may_miss = folders, may_miss

    def stored_rows(self, files: Sequence[OutputFile], store: Settings) -> ClusterRows:
        gone = Stored([], [Mark(files[0].run, 0)], is_lost=True) if files else None
        rows = [self._folders.rows.get((file.folder, file.name), gone) for file in files]
        return StoredRows([Partition([each]) for each in rows if each is not None], self._read)

    @override
    def run(self, job: LevelsJob) -> LevelsResult | None:
        with self._noticing_losses():
            return super().run(job)

    @override
    def gather(self, *arguments: Any) -> Mapping[DestinationId, SideInputRows]:
        with self._noticing_losses():
            return super().gather(*arguments)

    @contextlib.contextmanager
    def _noticing_losses(self) -> Iterator[None]:
        try:
            yield
        except ClusterError as error:
            if error.missing is None:
                raise
            assert self._may_miss(), "rows are missing that a manifest names"
            raise LostRowsError(error.missing, "they were removed") from error


class Start:
    """One start of the driver.

    Args:
        world: Everything around it.

    Attributes:
        answers: The storage as it sees it.
        cluster: On which it runs.
        tally: Its metrics.
        background: What it has begun beside itself.
        wakes_at: The step before which it does nothing.
    """

    def __init__(self, world: "RecoveredWorld") -> None:
        self._world = world
        self.answers = DriverAnswers(world.folders.root, world.random)
        self.answers.pause = pause
        self.cluster = FolderCluster(world, world.folders, self._may_miss)
        self.tally = RunMetrics()
        self.background: list[Steps] = []
        self.wakes_at = 0
        self.steps = Steps(self._run)

    def _may_miss(self) -> bool:
        return self._world.has_lost_rows or self.may_be_replaced()

    def may_be_replaced(self) -> bool:
        """Whether a later start has claimed the job, or has ended it."""
        fences = map(fence_in, self._world.folders.root.content)
        is_latest = max(filter(None, fences), default=0) == self.answers.fence
        return self._world.has_ended or not is_latest

    def kill(self) -> None:
        """End it where it is, with its tasks."""
        self.answers.is_dead = True
        for each in (*self.background, self.steps):
            each.kill()

    def submit(self, work: Callable[[], Any], /) -> "_Pending":
        """See ``Background``."""
        pending = _Pending(work)
        self.background.append(pending.steps)
        return pending

    def _run(self) -> None:
        world, folder = (
            self._world,
            SimulatedFolder(self._world.folders, self.answers, self._world.random),
        )
        names = self.answers.names()
        if ENDED in names:
            remove_ended(self.answers, folder)
            return
        if SUBMISSION not in names:
            remove_leftovers(self.answers, folder)
            return  # another start has ended the job; a program would begin again

        def outlast(work: Callable[[], Any]) -> Any:
            return retry_while_unavailable(work, world.now_s, lambda _: None, lambda _: pause())

        start = BatchStart(
            self.answers,
            folder,
            fingerprint(world.pipeline.plan),
            tries_again=True,
            outlast=outlast,
            mark=f"{world.random.getrandbits(64):x}",
        )
        names = outlast(self.answers.names)
        if ENDED in names or SUBMISSION not in names:
            raise FencedError(start.number, start.number + 1)
        surroundings = Surroundings(
            clock=world,
            wait=lambda _: pause(),
            background=self,
            on_continue=lambda _: None,
            slots=lambda: 3,
            on_commit=lambda: None,
        )
        store = StoredSegments(world.pipeline.plan, self.cluster, start, folder, surroundings)
        run_plan(world.pipeline.plan, world.settings(), self.cluster, self.tally, world, store)
        store.close()
        start.end()


class _Pending:
    """See ``Pending``: work that goes on in steps."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._error: Exception | None = None
        self.steps = Steps(self._do)

    def _do(self) -> None:
        try:
            self._result = self._work()
        except Exception as error:
            self._error = error

    def result(self) -> Any:
        while not self.steps.has_ended:
            pause()
        if self._error is not None:
            raise self._error
        return self._result


class RecoveredWorld(BatchWorld):
    """All of it. What happens follows from the seed and from the calls.

    Args:
        pipeline: That the drivers run; each of its levels is a segment.
        seed: Of all that is drawn.
        faults: See ``BatchWorld``.

    Attributes:
        folders: What is stored.
        starts: The starts of the driver that have not ended, the latest last.
        count: How many starts there were.
        has_lost_rows: Whether ``lose_file`` has removed any.
        tasks: How many attempts have made something, by level and partition.
    """

    def __init__(self, pipeline: BoundedPipeline, seed: int, faults: float = 0.05) -> None:
        super().__init__(pipeline, seed, faults)
        self._driver.kill()
        self.folders = StoredFolders()
        self.folders.root.create(SUBMISSION, b"what runs")
        self.folders.root.on_created = self._created
        self._committed: Sequence[bytes] | None = None
        self.starts = [Start(self)]
        self.count = 1
        self.has_lost_rows = False
        self.tasks: Counter[tuple[int, int]] = Counter()

    @override
    def close(self) -> None:
        for each in self.starts:
            each.kill()
        super().close()

    @override
    def step(self) -> None:
        """Let a start go on, or what it has begun beside itself."""
        self.steps += 1
        assert self.steps < _MAX_STEPS, "the pipeline does not come to its end"
        awake = [each for each in self.starts if each.wakes_at <= self.steps]
        start = self.random.choice(awake or self.starts)
        going = [each for each in (start.steps, *start.background) if not each.has_ended]
        try:
            self.random.choice(going).go_on()
        except FencedError:
            assert start.may_be_replaced(), "the only driver has given up"
        except (CheckpointStorageError, SparkJobError, LostRowsError):
            start.kill()  # the next one continues
        if start.steps.has_ended:
            self.starts.remove(start)
        if not self.starts:
            self._start_or_end()

    def _start_or_end(self) -> None:
        if not self.folders.root.content.keys().isdisjoint((SUBMISSION, ENDED)):
            self.start()
            return
        assert self._committed is not None, "the job has gone without an end"
        self._check_committed(self._committed)
        self.end = "done"

    @property
    def has_ended(self) -> bool:
        """Whether the end of the job is stored."""
        return self._committed is not None

    # What happens.

    def start(self) -> None:
        """The command runs once more; earlier starts may still run."""
        self.starts.append(Start(self))
        self.count += 1

    def kill(self) -> None:
        """A driver dies, with its tasks."""
        start = self.random.choice(self.starts)
        start.kill()
        self.starts.remove(start)
        if not self.starts:
            self._start_or_end()

    def sleep(self, steps: int, *, before_commit: bool = False) -> None:
        """A driver sleeps, with its tasks, and the command runs once more.

        Args:
            steps: How long.
            before_commit: Not now, but once it is about to commit.
        """
        start = self.random.choice(self.starts)

        def sleep() -> None:
            start.wakes_at = self.steps + steps
            self.start()

        if before_commit:
            start.answers.before_commit = sleep
        else:
            sleep()

    def lose_file(self) -> None:
        """Somebody removes rows that a task has stored."""
        there = [rows for rows in self.folders.rows.values() if not rows.is_lost]
        if there:
            self.has_lost_rows = True
            self.random.choice(there).is_lost = True

    def lose_answer(self) -> None:
        """The storage fails when a driver creates its next file, which may be there."""
        self.random.choice(self.starts).answers.loss = self.random.choice(("before", "after"))

    # What drivers, jobs and the cluster see.

    def settings(self) -> RunSettings:
        return RunSettings(
            job_id="job",
            least_partitions=self.pipeline.partitions,
            most_partitions=self.pipeline.partitions + 2,
            counts_bytes=self.pipeline.counts_bytes,
            limits=self._limits(),
            check_cancelled=lambda: None,
            observer=self,
            single_task_budget_s=0.0,
            round_budget_s=1.0 if self.pipeline.has_rounds else None,
        )

    def now_s(self) -> float:
        return float(self.steps)

    @override
    def monotonic_ns(self) -> int:
        return self.steps * 1_000_000_000

    @override
    def began(self, run: int, *, is_additional: bool = False) -> None: ...

    @override
    def crashed(self, error: ClusterError) -> None: ...

    @override
    def store(self, program: LevelProgram, made: Made) -> None:
        """As ``StoredOutput``: rows, and then the finish record, each in a step."""
        place = (program.batch or BatchPart()).output_place
        assert place is not None
        report = made.report
        self.tasks[report.level, report.partition] += 1
        if report.failure is not None or report.is_poisoned:
            return
        finish = Finish(report.partition, place.tasks, report.attempt)
        files = self.folders.work.get(place.folder)
        if files is None:  # the job is over, or this Spark job is
            raise ClusterError(f"{place.folder} is missing", lost=False)
        if place.has_rows:
            stored = Stored(made.work.rows, [made.mark])
            self.folders.rows[place.folder, finish.rows_name] = stored
        self.pause()
        if self.folders.work.get(place.folder) is not files:
            raise ClusterError(f"{place.folder} is missing", lost=False)
        files.create(finish.record_name, encode_record(_coded(report)))
        self.pause()

    def _created(self, name: str) -> None:
        """Look at the end of the job; see ``BatchStart.end``."""
        if name == ENDED:
            coded = json.loads(self.folders.root.content[ENDED])
            before, self._committed = self._committed, tuple(map(bytes.fromhex, coded))
            # A driver may sleep just before it creates the file.
            assert before is None or attempts_in(before) == attempts_in(self._committed)

    # What must be true.

    def _check_committed(self, committed: Sequence[bytes]) -> None:
        counts = attempts_in(committed)
        assert set(counts.values()) <= {1}, "an attempt counts twice"
        self.results = [self._made[attempt] for attempt in counts]
        check(self.pipeline.plan, self.results, self._expected, is_whole=True)
        # A driver that claims the job or commits while another one ends it leaves a file.
        storage = DriverAnswers(self.folders.root, self.random)
        remove_leftovers(storage, SimulatedFolder(self.folders, storage, self.random))
        assert not self.folders.root.content


def _coded(report: Report) -> bytes:
    proto = reports_pb2.TaskReport(
        level=report.level,
        partition=report.partition,
        attempt=report.attempt,
        monitoring_infos=report.monitoring_infos,
        emitted_bytes=report.emitted_bytes,
        returned_rows=report.returned_rows,
    )
    for run, attempts in report.consumed.items():
        proto.consumed[run].count, proto.consumed[run].sum = attempts.count, attempts.sum
    for dest, residuals in report.residuals.items():
        proto.residuals[dest].count = residuals.count
    return proto.SerializeToString()

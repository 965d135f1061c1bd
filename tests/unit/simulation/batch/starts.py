"""Starts of the driver of a simulated job, which use one folder."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from beam_spark_runner.core.errors import LostRowsError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.cluster import LevelsJob, LevelsResult
from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.driving.run_context import RunMetrics
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.stored_segments import StoredSegments, Surroundings
from beam_spark_runner.engine.program import SideInputRows
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.formats import SUBMISSIONS
from beam_spark_runner.recovery.job_folders import (
    Leftovers,
    ended_job,
    folder_name,
    is_over,
    remove_ended,
)
from beam_spark_runner.recovery.job_submissions import begun_job, job_in, submit
from beam_spark_runner.recovery.manifest import FencedError, fence_in, with_digest
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.storage.folder import Settings
from tests.unit.simulation.batch.cluster import SimulatedCluster
from tests.unit.simulation.batch.job_folder import DriverAnswers, StoredFolders
from tests.unit.simulation.batch.rows import ClusterError, Mark, Partition, Stored, StoredRows
from tests.unit.simulation.steps import Steps, pause

if TYPE_CHECKING:
    from tests.unit.simulation.batch.recovered_world import RecoveredWorld


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
        job: The job that it runs; empty: it does not know it yet.
    """

    def __init__(self, world: "RecoveredWorld") -> None:
        self._world = world
        self.answers = DriverAnswers(world.folders.root, world.random)
        self.answers.pause = pause
        self.cluster = FolderCluster(world, world.folders, self._may_miss)
        self.tally = RunMetrics()
        self.background: list[Steps] = []
        self.wakes_at = 0
        self.job = ""
        self.steps = Steps(self._run)

    def _may_miss(self) -> bool:
        return self._world.has_lost_rows or self.may_be_replaced()

    def may_be_replaced(self) -> bool:
        """Whether a later start has claimed the job, or has ended it."""
        world = self._world
        place = f"{folder_name(self.job)}/" if world.has_subfolders else ""
        files = [name for name in world.folders.root.content if name.startswith(place)]
        fences = (fence_in(name.removeprefix(place)) for name in files)
        is_latest = max(filter(None, fences), default=0) == self.answers.fence
        return self.job in world.committed or not is_latest

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
        """As ``ProgramRecovery``."""
        world = self._world

        def outlast(work: Callable[[], Any]) -> Any:
            return retry_while_unavailable(work, world.now_s, lambda _: None, lambda _: pause())

        root = world.folder_for(self.answers)
        ended = ended_job(root)
        if ended is not None:
            remove_ended(root, ended.job)
            return
        leftovers = Leftovers(root)
        own = ""
        begun = begun_job(root.storage)
        while begun is None:
            if not world.begins_job():
                return
            own = f"{world.random.getrandbits(128):032x}"
            content = with_digest({"job": own}, SUBMISSIONS)
            begun = submit(root.storage, own, content)
        if begun.job == own:
            leftovers.remove()
        else:
            assert job_in(root.storage.read(begun.submission)) == begun.job
        self.job = begun.job
        folder = root.of_job(self.job)
        start = BatchStart(
            folder.storage,
            folder,
            fingerprint(world.pipeline.plan),
            tries_again=True,
            outlast=outlast,
            mark=f"{world.random.getrandbits(64):x}",
        )
        if is_over(root, self.job):
            start.withdraw()
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
        if start.end():
            remove_ended(root, self.job)


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

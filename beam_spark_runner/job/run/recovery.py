"""A job that a later start can continue: its run, and its end."""

import contextlib
import logging
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from beam_spark_runner.core.errors import CheckpointStorageError, InvariantError
from beam_spark_runner.core.ids import SegmentId, TransformId
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.session import Session
from beam_spark_runner.driving.stored_segments import StoredSegments, Surroundings
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.previous_starts import client_of, end_previous
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_manifest import commits
from beam_spark_runner.recovery.batch_start import PROBE, BatchStart, Outlast
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.stored_folder import check_shared_folder
from beam_spark_runner.storage.folder_at import folder_at

_LOGGER = logging.getLogger(__name__)
_LOOKS_EVERY_S = 10.0
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How the run of a job has ended.

    Attributes:
        state: The last state, one of ``PipelineState``.
        error: Why it has failed. None: it has not.
        warn: Is called with what users should know of the files of a job that is not done.
        attempted: Returns the metrics of all attempts: serialised MonitoringInfos.
        committed: Returns the committed metrics.
    """

    state: str
    error: BaseException | None
    warn: Callable[[str], None]
    attempted: Callable[[], Sequence[bytes]]
    committed: Callable[[], Sequence[bytes]]


class JobRecovery(ABC):
    """One start of a job.

    Threads: those of the job, one at a time; and one that it starts, which looks at the fence.

    Args:
        folder: The folder of the job.
        option: The option that names the folder, for errors.
        waits_s: ``--previous_worker_recovery_timeout``.
        began_s: When the first start of the job began, Unix time.
        tries_again: Whether to start although earlier starts have ended at the same place.
        on_commit: Is called at each commit.

    Attributes:
        began_s: See the argument.
        done_metrics: The metrics of a job that an earlier start has run to its end. None: it has
            not.
        start: The start, once it has claimed the job.
        is_fenced: Whether another start has taken the job over.
        has_run: Whether it has begun to run the plan; else the executors were refused.
        error: After ``finish``: why the job has failed. None: it has not.
        segments: How many Spark jobs the plan has; 0 before it begins.
    """

    def __init__(
        self,
        folder: JobFolderAt,
        option: str,
        waits_s: float,
        began_s: float,
        *,
        tries_again: bool = False,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self.began_s = began_s
        self.done_metrics: tuple[bytes, ...] | None = None
        self.start: BatchStart | None = None
        self.is_fenced = self.has_run = False
        self.segments = 0
        self.error: BaseException | None = None
        self._folder = folder
        self._storage = folder.storage
        self._option = option
        self._waits_s = waits_s
        self._tries_again = tries_again
        self._on_commit = on_commit
        self._ended = threading.Event()

    def begun_writes(self, plan: Plan) -> frozenset[TransformId]:
        """Return the steps whose writes of tables earlier starts have begun, or made.

        Args:
            plan: The plan of the job.
        """
        begun = {
            number
            for manifest in newest(self._storage, commits())
            for number in (*manifest.begun, *manifest.written)
        }
        return frozenset(
            segment.table_write
            for segment in plan.segments
            if segment.table_write is not None and int(segment.id) in begun
        )

    def begin(self, plan: Plan, session: Session, tag: str, control: JobControl) -> None:
        """Take the job over, unless it is done, before anything runs in the session.

        Tasks of a client that has died may use all of its slots.

        Args:
            plan: The plan of the job.
            session: The session in which it runs.
            tag: The tag of its Spark jobs.
            control: Ends the job if another start has taken it over.

        Raises:
            RunnerError: See ``BatchStart``.
        """
        if self.done_metrics is not None:
            return
        self.segments = len(plan.segments)
        with self._noticing_fences():
            self._begin(plan, session, tag, control)

    def _begin(self, plan: Plan, session: Session, tag: str, control: JobControl) -> None:
        def outlast(work: Callable[[], _Result]) -> _Result:
            return retry_while_unavailable(work, time.monotonic, _LOGGER.warning, control.pause)

        start = self.start = self._new_start(plan, session, tag, outlast)
        watch = threading.Thread(
            target=self._watch,
            args=(start, control, lambda: session.cancel(tag)),
            name="beam-fence",
            daemon=True,
        )
        watch.start()
        outlast(lambda: self._check_claimed(start))
        end_previous(
            start,
            self._folder,
            session,
            self._waits_s,
            time.monotonic,
            lambda seconds: _wait(start, control, seconds),
        )

    def _new_start(self, plan: Plan, session: Session, tag: str, outlast: Outlast) -> BatchStart:
        """Claim the job."""
        return BatchStart(
            self._storage,
            self._folder,
            fingerprint(plan),
            tries_again=self._tries_again,
            client=client_of(session, tag),
            outlast=outlast,
            mark=uuid.uuid4().hex,
        )

    def in_stream(self, settings: RunSettings, session: Session) -> RunSettings:
        """Return how a stream runs, after ``begin``; see ``run_epochs``, which then runs it.

        Args:
            settings: How it would run if it could not be continued.
            session: The session in which it runs.

        Raises:
            OptionsError: The executors do not share its folder.
        """
        raise InvariantError("only a job server continues streams by itself")

    def run(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        control: JobControl,
        session: Session,
    ) -> None:
        """Run what earlier starts have not run, after ``begin``; see ``run_plan``.

        Args:
            plan: The plan of the job.
            settings: How it runs.
            cluster: Where it runs.
            tally: Gets its metrics.
            clock: Of this machine.
            control: Ends the job if another start has taken it over.
            session: The session in which it runs.

        Raises:
            RunnerError: See ``check_shared_folder`` and ``run_plan``.
        """
        if self.done_metrics is not None:
            _LOGGER.warning("an earlier start has run this job to its end: nothing is left to do")
            tally.accepted[SegmentId(0)] = self.done_metrics
            return
        start = self.start
        assert start is not None  # it has begun
        self._check_executors(settings, session)
        self.has_run = True
        with ThreadPoolExecutor(1, "beam-sweep") as background, self._noticing_fences():
            store = StoredSegments(
                plan,
                cluster,
                start,
                self._folder,
                Surroundings(
                    clock=clock,
                    wait=lambda seconds: _wait(start, control, seconds),
                    background=background,
                    on_continue=lambda done: self._continues(settings, done),
                    slots=session.slots,
                    on_commit=self._on_commit,
                    on_trouble=settings.on_trouble,
                ),
            )
            with contextlib.closing(store):
                run_plan(plan, settings, cluster, tally, clock, store)

    def _check_executors(self, settings: RunSettings, session: Session) -> None:
        """Check that the executors share the folder; see ``check_shared_folder``."""
        if isinstance(session, SessionHandle):
            probe = folder_at(self._folder.place(PROBE), self._folder.settings)
            with session.job_scope(settings.job_id, "Verify executors"):
                check_shared_folder(session, probe, self._folder.root, self._option)

    def _continues(self, settings: RunSettings, progress: str) -> None:
        """Show after how many Spark jobs the job continues; see ``RunSettings.on_continue``."""
        settings.on_continue(progress)

    @contextlib.contextmanager
    def _noticing_fences(self) -> Iterator[None]:
        try:
            yield
        except FencedError:
            self.is_fenced = True
            raise

    @abstractmethod
    def _check_claimed(self, start: BatchStart) -> None:
        """Check that the job was not over when ``start`` claimed it.

        Raises:
            FencedError: It was.
            CheckpointStorageError: The folder cannot be read.
        """

    def finish(self, outcome: RunOutcome) -> str | None:
        """End this start: remove the files of a job that is over.

        Returns:
            The last state of the job. None: the job is not over, another start continues it.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        self._ended.set()
        self.error = outcome.error
        return self._finish(outcome)

    @abstractmethod
    def _finish(self, outcome: RunOutcome) -> str | None:
        """See ``finish``."""

    @property
    def progress(self) -> str:
        """How far the job is, for people."""
        done = 0 if self.start is None else len(self.start.manifest.done)
        return f"{done} of {self.segments} Spark jobs"

    def _watch(self, start: BatchStart, control: JobControl, cancel: Callable[[], None]) -> None:
        while not self._ended.wait(_LOOKS_EVERY_S):
            try:
                start.check_fence()
            except FencedError as error:
                self.is_fenced = True  # whatever error ends the job now
                control.end_with(error)
                cancel()
                return
            except CheckpointStorageError as error:
                _LOGGER.debug("the fence cannot be read: %s", error)


def _wait(start: BatchStart, control: JobControl, seconds: float) -> None:
    start.check_fence()
    control.pause(seconds)

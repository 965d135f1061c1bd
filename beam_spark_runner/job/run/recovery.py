"""A bounded job that a later start can continue: its run, and its end."""

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.stored_segments import StoredSegments, Surroundings
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.manifest import FencedError

_LOGGER = logging.getLogger(__name__)
_LOOKS_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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

    Threads: those of the job, one at a time.

    Args:
        folder: The folder of the job.
        tries_again: Whether to start although earlier starts have ended at the same place.

    Attributes:
        start: The start, once it has claimed the job.
        is_fenced: Whether another start has taken the job over.
        segments: How many Spark jobs the plan has; 0 before it runs.
    """

    def __init__(self, folder: JobFolderAt, *, tries_again: bool = False) -> None:
        self.start: BatchStart | None = None
        self.is_fenced = False
        self.segments = 0
        self._folder = folder
        self._storage = folder.storage
        self._tries_again = tries_again
        self._ended = threading.Event()

    @property
    @abstractmethod
    def began_s(self) -> float:
        """When the first start of the job began, Unix time."""

    def run(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        control: JobControl,
        cancel: Callable[[], None],
        slots: Callable[[], int],
    ) -> None:
        """Run what earlier starts have not run; see ``run_plan``.

        Args:
            plan: The plan of the job.
            settings: How it runs.
            cluster: Where it runs.
            tally: Gets its metrics.
            clock: Of this machine.
            control: Ends the job if another start has taken it over.
            cancel: Cancels the Spark jobs that run.
            slots: Returns how many tasks run at a time.

        Raises:
            RunnerError: See ``BatchStart`` and ``run_plan``.
        """
        self.segments = len(plan.segments)
        start = self.start = BatchStart(
            self._storage, self._folder, fingerprint(plan), tries_again=self._tries_again
        )
        watch = threading.Thread(
            target=self._watch, args=(start, control, cancel), name="beam-fence", daemon=True
        )
        watch.start()

        def wait(seconds: float) -> None:
            start.check_fence()
            control.wait(seconds)
            control.check()

        with ThreadPoolExecutor(1, "beam-sweep") as background, self._noticing_fences():
            self._check_claimed(start)
            store = StoredSegments(
                plan,
                cluster,
                start,
                self._folder,
                Surroundings(
                    clock=clock,
                    wait=wait,
                    background=background,
                    on_continue=settings.on_continue,
                    slots=slots,
                ),
            )
            with contextlib.closing(store):
                run_plan(plan, settings, cluster, tally, clock, store)

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
        """

    def finish(self, outcome: Outcome) -> str | None:
        """End this start: remove the files of a job that is over.

        Returns:
            The last state of the job. None: the job is not over, another start continues it.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        self._ended.set()
        return self._finish(outcome)

    @abstractmethod
    def _finish(self, outcome: Outcome) -> str | None:
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
                control.end_with(error)
                cancel()
                return
            except CheckpointStorageError as error:
                _LOGGER.debug("the fence cannot be read: %s", error)

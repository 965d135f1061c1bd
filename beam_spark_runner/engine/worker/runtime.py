"""The cache of a Python worker between tasks, by job.

Tasks of many jobs take turns in a process. The stages and side inputs of a job are cached until
the driver reports over the backchannel that the job has ended. Without such a report, the next
task of another job releases them if their job has been idle for a long time, or if too many jobs
are idle.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows
from beam_spark_runner.backchannel.conversation import Look
from beam_spark_runner.backchannel.log_lines import STDERR, LogHandler, Shown
from beam_spark_runner.backchannel.process_log import ProcessLog, ProgramLog, logging_to
from beam_spark_runner.backchannel.worker import Backchannel
from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.engine.program import (
    HelperProgram,
    LevelProgram,
    SideInputRows,
    StageProgram,
)
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.worker.memory_profile import memory_profile
from beam_spark_runner.engine.worker.running_tasks import RunningTasks
from beam_spark_runner.harness.beam.coded_types import coded_types
from beam_spark_runner.harness.beam.dill_main import show_dill
from beam_spark_runner.harness.beam.dynamic_classes import DynamicClasses
from beam_spark_runner.harness.beam.element_samples import samples_of
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.harness.beam.job_options import JobOptions, seeing, use_options
from beam_spark_runner.harness.beam.profiling import Profiling
from beam_spark_runner.harness.beam.sampling import running_transform
from beam_spark_runner.harness.beam.side_input_cache import DecodedCache
from beam_spark_runner.harness.bundle import StageHarness
from beam_spark_runner.harness.main_classes import MainModule
from beam_spark_runner.harness.remote.remote_stage import RemoteStage
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.state.remote.loaded_packs import PackCache

MAX_IDLE_S = 300.0
"""A job without a task for so long counts as ended."""
MAX_IDLE_JOBS = 50
_LAST_TASK_S = 5.0  # for the last task of a job that has ended

process_log = ProcessLog(LogHandler(STDERR, running_transform))
"""The log of this process, if it is a Python worker."""
program_log = ProgramLog()
"""The log of this process, if it is the program."""


class JobRuntime:
    """The cache of a process for one job: stages, side inputs, and the connection to the driver.

    Threads: one task at a time; ``close`` from any, while none runs.

    Args:
        program: the program of any task of the job.
        cache: decoded values of side inputs, of all jobs.
        on_end: is called from another thread when the driver says that the job has ended.

    Attributes:
        samples: keeps elements that steps emit. None: nobody asks for them.
        packs: what the last tasks have read from a state store.
    """

    def __init__(
        self, program: LevelProgram, cache: DecodedCache, on_end: Callable[[], object]
    ) -> None:
        self.job_id = program.job_id
        self.idle_since_s = 0.0
        self.packs = PackCache()
        self._options = JobOptions(program.limits.options_json)
        self._profiling = Profiling(self._options)
        self.samples = samples_of(self._options.by_name)
        self._classes = DynamicClasses()
        self._main = MainModule(program.limits.main_classes)
        self._harnesses = program.limits.harnesses
        self._step_chunks = program.limits.step_chunks
        self._cache = cache
        self._channel = None
        self._in_program = program.limits.in_program
        if program.limits.route is not None:
            self._channel = Backchannel(
                program.limits.route,
                on_end=on_end,
                running_transform=running_transform,
                within=self._within_job,
                memory=memory_profile,
            )
            self._log = self._channel.handler
            if self._in_program:
                self._log = LogHandler(Shown(self._channel), running_transform)
                program_log.begin_job()
            else:
                process_log.begin_job()
        self._stages: dict[StageId, EmbeddedStage | RemoteStage] = {}
        self._side_inputs: dict[str, GatheredRows] = {}
        # Windows of side inputs that SDKs have mapped, by helper stage: see ``side_windows``.
        self.side_windows: defaultdict[StageId, dict[bytes, SideWindow]] = defaultdict(dict)

    @contextlib.contextmanager
    def running(
        self, program: LevelProgram, attempt: int, look: Look, status: Callable[[], str]
    ) -> Iterator[None]:
        """Set the job's options and main module in this process; send a task's logs and progress.

        Args:
            program: the program of the task.
            attempt: the number of the attempt.
            look: see ``Backchannel.watching``.
            status: see there.
        """
        use_options(self._options)
        if not self._in_program:
            self._become_the_program()
        self._cache.limit(program.limits.cache_bytes)
        channel = self._channel
        # In a separate process, other threads of user code see them, too.
        with contextlib.ExitStack() as here:
            if self._in_program:
                here.enter_context(self._within_job())
            if channel is not None:
                at_end = program.epoch is None
                watching = channel.watching(attempt, look, at_end=at_end, status=status)
                here.enter_context(watching)
            # SDK harnesses make the profiles of the stages that they run.
            if not all(stage.description.coded_environment for stage in program.stages):
                name = f"{self.job_id}-level-{program.level}-attempt-{attempt:x}"
                here.enter_context(self._profiling.of_task(name))
            yield

    @contextlib.contextmanager
    def _within_job(self) -> Iterator[None]:
        """Let code of the job in this thread see its options, and log to it."""
        with seeing(self._options):
            if self._in_program and self._channel is not None:
                with logging_to(self._log):
                    yield
            else:
                yield

    def _become_the_program(self) -> None:
        """Give this process the classes of the program, and its log to the driver."""
        coded_types.serve(self.job_id)
        self._classes.serve()
        self._main.serve()
        show_dill()
        handler = None if self._channel is None else self._channel.handler
        process_log.begin_task(handler, self._options.by_name)

    def stage(
        self, program: StageProgram | HelperProgram, side_inputs: frozenset[str]
    ) -> StageHarness:
        """Return a stage, from the cache if an earlier task of the job has made it.

        It is created again if its side inputs have other ids, since operations keep views of them:
        rows of side inputs are computed again when executors are lost, and in epochs.

        Args:
            program: the program of the stage, or of a helper.
            side_inputs: the ids of side inputs of which operations keep views beyond a bundle.
        """
        stage = self._stages.get(program.stage)
        if stage is not None and stage.side_inputs != side_inputs:
            self.discard(program.stage)
            stage = None
        if stage is None:
            stage = self._stages[program.stage] = self._make_stage(program, side_inputs)
        if self._channel is not None and (isinstance(stage, RemoteStage) or stage.may_tear_down):
            self._channel.await_end()
        return stage

    def _make_stage(
        self, program: StageProgram | HelperProgram, side_inputs: frozenset[str]
    ) -> EmbeddedStage | RemoteStage:
        if not program.description.coded_environment:
            return EmbeddedStage(
                program.name,
                program.description,
                side_inputs,
                self._cache,
                step_chunks=self._step_chunks,
                sampler=self.samples,
            )
        if self._harnesses is None:
            raise InvariantError(f"{program.name} needs an SDK harness, and has no settings of it")
        log_sink = self._channel or STDERR
        return RemoteStage(
            program.name,
            program.description,
            self._harnesses,
            program.stage,
            log_sink,
            side_inputs,
        )

    def discard(self, stage_id: StageId) -> None:
        """Tear down a stage whose bundle failed: the state of its DoFns is unknown."""
        stage = self._stages.pop(stage_id, None)  # another thread may do the same
        if isinstance(stage, EmbeddedStage):
            stage.close()

    def side_input(self, source: SideInputRows) -> GatheredRows:
        """Return the rows of a side input, from the cache if an earlier task has opened them."""
        rows = self._side_inputs.get(source.id)
        if rows is None:
            rows = self._side_inputs[source.id] = GatheredRows(source)
        return rows

    def forget_side_inputs(self, keep: Collection[str]) -> None:
        """Remove the rows of side inputs from the cache.

        Args:
            keep: the ids of side inputs whose rows remain.
        """
        for id_ in self._side_inputs.keys() - set(keep):
            del self._side_inputs[id_]

    def hold_callbacks(
        self, attempt: int, callbacks: Sequence[Callbacks], epoch: int | None = None
    ) -> bool:
        """See ``Backchannel.hold``."""
        if self._channel is not None:
            return self._channel.hold(attempt, callbacks, epoch)
        for callback in callbacks:
            callback.drop()
        return False

    def offer_rows(self, rows: OfferedRows) -> None:
        """See ``Backchannel.offer``."""
        if self._channel is not None:
            self._channel.offer(rows)

    @property
    def must_stay(self) -> bool:
        """Whether this job stays here until the driver ends it, however long it is idle.

        Callbacks of bundle finalization may wait for the driver, or other processes for this one.
        """
        if self._channel is None:  # the driver cannot be heard
            return False
        return self._channel.holds or sdk_harnesses.must_stay(self.job_id)

    def wait_for_end(self) -> None:
        """Wait until the driver has ended the job, unless it cannot be heard."""
        if self._channel is not None:
            self._channel.wait_for_end()

    def end_task(self) -> tuple[str, int]:
        """See ``Backchannel.end_task``."""
        return ("", 0) if self._channel is None else self._channel.end_task()

    def tear_down(self) -> None:
        """Tear down all stages, and end the SDK harnesses that wait for the job's next task."""
        for stage_id in list(self._stages):
            self.discard(stage_id)
        sdk_harnesses.end_job(self.job_id)

    def close(self) -> None:
        """Release everything. User code that this runs sees the options of its own job."""
        with seeing(self._options):
            if self._channel is None:
                self.tear_down()
            else:
                with logging_to(self._log):
                    self.tear_down()
                self._channel.close()
                if self._in_program:
                    program_log.end_job()
        self._side_inputs.clear()
        self._cache.forget(self.job_id)


class WorkerRuntime:
    """The cached jobs of one process.

    Args:
        now_s: a clock that never goes back.
        max_idle_s: see ``MAX_IDLE_S``.
        max_idle_jobs: how many idle jobs are cached; beyond it, those idle longest are ended.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        max_idle_s: float = MAX_IDLE_S,
        max_idle_jobs: int = MAX_IDLE_JOBS,
    ) -> None:
        self._now_s = now_s
        self._max_idle_s = max_idle_s
        self._max_idle_jobs = max_idle_jobs
        self._cache = DecodedCache()
        self._jobs: dict[str, JobRuntime] = {}
        self._tasks = RunningTasks(self._close_job)

    @contextlib.contextmanager
    def working_for(
        self, program: LevelProgram, abandon: Callable[[], None]
    ) -> Iterator[JobRuntime]:
        """Return the runtime of a job, which is kept for as long as the task runs.

        Args:
            program: the program of the task.
            abandon: makes the task end soon; called from another thread.
        """
        job_id = program.job_id
        with self._tasks.working_for(job_id, abandon):
            self._end_idle(keep=job_id)
            job = self._jobs.get(job_id)
            if job is None:
                job = self._jobs[job_id] = JobRuntime(
                    program, self._cache, lambda: self.end_job(job_id)
                )
            try:
                yield job
            finally:
                job.idle_since_s = self._now_s()

    def end_job(self, job_id: str, timeout_s: float = _LAST_TASK_S) -> bool:
        """End a job; see ``RunningTasks.end_job``."""
        return self._tasks.end_job(job_id, timeout_s)

    def release_job(self, job_id: str) -> None:
        """See ``RunningTasks.release_job``."""
        self._tasks.release_job(job_id)

    def offer_rows(self, job_id: str, rows: OfferedRows) -> None:
        """Offer rows of a task that runs here to the driver; see ``Backchannel.offer``."""
        job = self._jobs.get(job_id)
        if job is not None:
            job.offer_rows(rows)

    def wait_for_ends(self) -> None:
        """Wait until the driver has ended all jobs of this process."""
        for job in list(self._jobs.values()):
            job.wait_for_end()

    def _close_job(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        if job is not None:
            job.close()

    def _end_idle(self, keep: str) -> None:
        idle = [
            job
            for job in list(self._jobs.values())
            if job.job_id != keep and not job.must_stay and not self._tasks.has_task_of(job.job_id)
        ]
        idle.sort(key=lambda job: job.idle_since_s, reverse=True)
        latest_s = self._now_s() - self._max_idle_s
        for position, job in enumerate(idle):
            if position >= self._max_idle_jobs or job.idle_since_s < latest_s:
                self.release_job(job.job_id)


worker = WorkerRuntime()
"""The runtime of this process."""

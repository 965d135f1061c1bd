"""One run of one pipeline: its thread, its state, its end."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.epoch_protocols import EpochSchedule
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.session import Session
from beam_spark_runner.driving.stream_run import run_epochs
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.graph.facts import users_steps
from beam_spark_runner.job.files.job_storage import JobStorage
from beam_spark_runner.job.files.last_commit import warn_of_last_commit
from beam_spark_runner.job.files.shard_places import save_job
from beam_spark_runner.job.files.temporary_files import may_be_continued, remove_temporary_files_of
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.clusters import check_executors_of, cluster_of, commits_in, tables_of
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.event_service import events_of_test_streams
from beam_spark_runner.job.run.last_steps import running_at_end
from beam_spark_runner.job.run.program_end import finish_before_end
from beam_spark_runner.job.run.recovery import JobRecovery, RunOutcome
from beam_spark_runner.job.run.run_settings import run_settings_of, with_watchers
from beam_spark_runner.job.run.scheduled_savepoints import with_savepoints
from beam_spark_runner.job.run.signal_waiting import wait_for
from beam_spark_runner.job.run.spark_gauges import show_in_spark
from beam_spark_runner.job.run.system_clock import SystemClock
from beam_spark_runner.job.run.telemetry import Deferrals, LiveTasks, TaskTelemetry, listen
from beam_spark_runner.job.run.users_steps import name_users_step
from beam_spark_runner.job.watching.partition_advice import PartitionAdvice
from beam_spark_runner.job.watching.progress_line import Line
from beam_spark_runner.job.watching.progress_lines import JobProgress
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.job.watching.stream_watch import StepWatermarks, StreamWatch
from beam_spark_runner.observing.segment_times import SegmentTimes
from beam_spark_runner.plan.blocking import blocking_side_inputs
from beam_spark_runner.portable.monitoring import residual_gauges

_LOGGER = logging.getLogger(__name__)

_TEARDOWN_OF_CANCELLED_S = 1.5


class Job:
    """Runs a plan in its own thread.

    Threads: every method may be called from any thread.

    Attributes:
        record: The states and messages of the job, which readers can follow.
        messages: The messages of the record.
        watch: The status of a streaming pipeline.
        session, segments, live: Where it runs; when segments have begun; what tasks have reported.
        config: The options of the pipeline.
        is_over: Of a job that has ended: whether no later start continues it.
    """

    def __init__(
        self,
        prepared: PreparedJob,
        session: Session,
        *,
        folder: Path | None,
        close_session: Callable[[], None],
        line: Line | None = None,
        record: JobRecord | None = None,
        recovery: JobRecovery | None = None,
        control: JobControl | None = None,
    ) -> None:
        """Open the pipeline's Spark tables; nothing runs yet.

        Args:
            prepared: The compiled pipeline.
            session: The session in which it runs.
            folder: See ``identity.folder_of``; made when the job begins, removed when it ends.
            close_session: Is called at the end of the job.
            line: Where its progress is shown. None: nowhere.
            record: The record of a job in state STARTING. None: a new one.
            recovery: Of a job that a later start can continue. None: it cannot, or it is a stream
                that the same command continues. A job that is not over leaves the record open.
            control: Requests that may have been made already. None: there are none.

        Raises:
            PipelineRefusedError: A table cannot be read or written.
        """
        self.job_id = prepared.job_id
        self.tally = RunMetrics()
        self.plan = plan = prepared.plan
        self.step_names = {id_: step.name for id_, step in plan.graph.transforms.items()}
        if record is None:
            record = JobRecord(self.step_names)
            record.change_state(PipelineState.STARTING)
        self.record = record
        self.messages = self.record.messages
        self._prepared = prepared
        self.config = prepared.config
        self.watch = StreamWatch(
            plan,
            self.messages,
            round(self.config.batch_interval_s * 1e6),
            lambda: self.tally.committed,
            PartitionAdvice(self.config, self.messages.inform),
            show_in_spark(prepared, session, self.messages.warn),
        )
        self.live = LiveTasks()
        self.segments = SegmentTimes()
        self.session = session
        self._tables = tables_of(plan, session, recovery)
        self._storage = JobStorage(
            self.job_id,
            folder,
            self.config.shared_storage,
            session,
            self.config.store_settings,
            self.messages.warn,
        )
        self._recovery = recovery
        self._close_session = close_session
        self._progress = None if line is None else JobProgress(line, prepared, self.tally)
        self._error: BaseException | None = None
        self._final_state: str = PipelineState.FAILED
        self.is_over = True  # once it has ended
        self._began: float | None = None  # the time at which the plan began to run
        self._telemetry: TaskTelemetry | None = None
        self._checkpoints: ShardLocations | None = None  # of a streaming pipeline, once it begins
        self._was_saved = False
        self._events = events_of_test_streams(plan.graph)
        self._control = JobControl() if control is None else control
        if self.config.drains and plan.is_streaming:
            self._control.drain()
        self._ended = threading.Event()
        # Not a daemon: the job also finishes if the program ends without waiting for it, see
        # ``program_end``.
        self._thread = threading.Thread(target=self._run, name=f"beam-job-{self.job_id}")

    @property
    def state(self) -> str:
        """One of ``PipelineState``."""
        return self.record.state

    @property
    def plays_test_stream(self) -> bool:
        """Whether a TestStream drives the pipeline."""
        return self._events is not None

    @property
    def drains_on_sigterm(self) -> bool:
        """Whether SIGTERM drains the job: it streams, and --drain_on_sigterm is set."""
        return self.config.drains_on_sigterm and self.plan.is_streaming

    @property
    def error(self) -> BaseException | None:
        """The error because of which the job failed; None: it has not failed."""
        return self._error

    def start(self) -> None:
        """Start the job's thread; the state is RUNNING from now on."""
        self.record.change_state(PipelineState.RUNNING)
        finish_before_end(self._ended, self.cancel)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the job's end; return whether it has ended in time."""
        return wait_for(self._ended, timeout_s)

    def deferrals(self) -> Mapping[TransformId, Deferrals]:
        """Return the residuals of splittable DoFns, as far as running tasks have reported them."""
        return self.live.deferrals()

    def attempted(self) -> Sequence[bytes]:
        """Return the metrics of all attempts, also of running tasks: serialised MonitoringInfos.

        Gauges of the number and hold of splittable DoFns' residuals are among them.
        """
        now_ms = time.time_ns() // 1_000_000
        deferred = [
            gauge.SerializeToString()
            for step, deferral in self.deferrals().items()
            for gauge in residual_gauges(step, deferral.number, deferral.hold_us, now_ms)
        ]
        return [*self.tally.attempted, *self.live.monitoring_infos(), *deferred]

    def cancel(self) -> None:
        """Cancel the Spark jobs and wait for the job's end. Does nothing after the end."""
        if not self._ended.is_set():
            self._control.cancel()
            self.end_now()

    def end_now(self) -> None:
        """End the job, as its control requests, and wait for the end."""
        self._stop_events()
        telemetry = self._telemetry
        if telemetry is not None:
            # Before Spark cancels tasks, since it kills their Python workers.
            telemetry.end_job(_TEARDOWN_OF_CANCELLED_S)
        while True:
            # The session raises if the job's thread is closing it.
            with contextlib.suppress(Exception):
                self.session.cancel(self.job_id)
            # Repeated for a Spark job that was submitted after the call.
            if self._ended.wait(0.5):
                return

    def drain(self) -> None:
        """Let the sources of a streaming pipeline end, and with them the pipeline. Does not wait.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
        """
        self._prepared.check_streams("draining")
        self._control.drain()
        self._stop_events()

    def make_savepoint(self, path: str) -> int:
        """Make a savepoint of a streaming pipeline's last commit; see ``shard_places.save_job``.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
        """
        self._prepared.check_streams("a savepoint of")
        self._was_saved = True
        return save_job(self._checkpoints, path, self.watch.note_savepoint)

    def watermarks(self) -> dict[str, StepWatermarks]:
        """See ``SparkPipelineResult.watermarks``."""
        self._prepared.check_streams("watermarks of")
        return self.watch.watermarks()

    def _is_to_drain(self) -> bool:
        drains = self._control.sees_drain()
        if drains and self.state == PipelineState.RUNNING:
            self.record.change_state(PipelineState.DRAINING)
        return drains

    def _run(self) -> None:
        steps = (
            self._stop_events,
            self._close_telemetry,
            self._end_recovery,
            self._report_last_commit,
            self._report_error,
            self._remove_temporary_files,
            self._storage.remove,
            self._end_progress,
            self._close_session,
            self._end_record,  # late: DoFns may log while they are torn down
            self._ended.set,
        )
        with running_at_end(steps):
            try:
                with self.session.job_scope(self.job_id, "Verify executors"):
                    self._final_state = self._run_plan()
            except BaseException as error:
                if self._control.is_cancelled or self._control.is_suspended:
                    self._final_state = PipelineState.CANCELLED
                else:
                    _LOGGER.debug("the pipeline failed", exc_info=error)
                    name_users_step(error, users_steps(self.plan.graph))
                    self._error = error

    def _run_plan(self) -> str:
        """Run the pipeline; return the state in which it has ended."""
        if self._progress is not None:
            self._progress.begin(
                self.session,
                self.watch,
                deferred=lambda: sum(deferral.number for deferral in self.deferrals().values()),
                attempted=self.attempted,
            )
        if self._recovery is not None:
            self._recovery.begin(self.plan, self.session, self.job_id, self._control)
        check_executors_of(self.session, self.config)
        self._control.check()
        self._storage.open()
        self._telemetry = listen(
            self._prepared, self.session, self._storage.mounted, self.messages, self.live
        )
        settings = self._settings(self._telemetry)
        cluster = cluster_of(
            self._prepared,
            self.session,
            self._storage,
            self._telemetry,
            self._tables,
            self._control.check,
            plays_test_stream=self.plays_test_stream,
        )
        self._began = time.time()
        with contextlib.closing(cluster):
            return self._run_on(cluster, settings)

    def _run_on(self, cluster: Cluster, settings: RunSettings) -> str:
        epoch = settings.epoch
        if epoch is None:
            self._run_batch(cluster, settings)
            return str(PipelineState.DONE)
        shards = self._checkpoints = epoch.shards
        for warning in blocking_side_inputs(self.plan):
            self.messages.warn(warning)
        checkpoints = commits_in(self.session, self.job_id, shards, self.config)
        checkpoints = replace(checkpoints, on_failed_commit=self.watch.note_failed_commit)
        settings = with_savepoints(settings, self.config, shards, self.messages, self.watch)
        if self._recovery is not None:
            settings = self._recovery.in_stream(settings, self.session)
        with ThreadPoolExecutor(1, "beam-sweep") as background:
            was_drained = run_epochs(
                self.plan,
                settings,
                cluster,
                self.tally,
                checkpoints,
                self._epoch_schedule(background),
                SystemClock(),
                self._events,
            )
        return str(PipelineState.DRAINED if was_drained else PipelineState.DONE)

    def _run_batch(self, cluster: Cluster, settings: RunSettings) -> None:
        clock = SystemClock()
        if self._recovery is None:
            run_plan(self.plan, settings, cluster, self.tally, clock)
            return
        self._began = self._recovery.began_s
        self._recovery.run(
            self.plan, settings, cluster, self.tally, clock, self._control, self.session
        )

    def _end_recovery(self) -> None:
        if self._recovery is None:
            return
        outcome = RunOutcome(
            state=self._final_state,
            error=self._error,
            warn=self.messages.warn,
            attempted=self.attempted,
            committed=lambda: self.tally.committed,
        )
        state = self._recovery.finish(outcome)
        self.is_over, self._error = state is not None, self._recovery.error
        self._final_state = state or self._final_state

    def _stop_events(self) -> None:
        if self._events is not None:
            self._events.stop()

    def _close_telemetry(self) -> None:
        if self._telemetry is not None:
            self._telemetry.close()

    def _report_last_commit(self) -> None:
        is_cancelled = self.is_over and self._final_state == PipelineState.CANCELLED
        if is_cancelled or (self.is_over and isinstance(self._error, SparkJobError)):
            warn_of_last_commit(self.config, self._checkpoints, self.messages.warn)

    def _report_error(self) -> None:
        if self._error is not None and self.is_over:
            self.messages.fail(self._error)

    def _remove_temporary_files(self) -> None:
        if self._began is not None:
            state, was_saved = self._final_state, self._was_saved
            remove_temporary_files_of(self._prepared, self._began, state, was_saved=was_saved)

    def _end_progress(self) -> None:
        if self._progress is not None:
            epoch = None if self.watch.status is None else self.watch.status.epoch
            may_continue = may_be_continued(self._prepared, was_saved=self._was_saved)
            self._progress.end(self._final_state, epoch, is_all_removed=not may_continue)

    def _end_record(self) -> None:
        if self.is_over:
            self.record.end(self._final_state)

    def _settings(self, telemetry: TaskTelemetry) -> RunSettings:
        settings = run_settings_of(
            self._prepared, self.session, self._storage, telemetry, self._control.check
        )
        return with_watchers(settings, self.watch, self.segments, self._progress)

    def _epoch_schedule(self, background: ThreadPoolExecutor) -> EpochSchedule:
        return EpochSchedule(
            interval_us=round(self.config.batch_interval_s * 1e6),
            sleep=self._control.sleep,
            wait=self._control.wait,
            drains=self._is_to_drain,
            drain=self.drain,
            background=background,
        )

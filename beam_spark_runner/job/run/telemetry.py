"""Receives what tasks send while they run: log lines, metrics and residuals so far."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import DriverFrame, TaskProgress, WorkerFrame
from beam_spark_runner._generated.reports_pb2 import TaskWork
from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.log_lines import was_shown
from beam_spark_runner.backchannel.offers import Offer, Offers
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.session import Session
from beam_spark_runner.engine.rows.reports import work_of
from beam_spark_runner.engine.worker.memory_profile import PROFILED_S
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.stacks_asked import StacksAsked
from beam_spark_runner.job.watching.messages import JobMessages
from beam_spark_runner.observing.level_works import LevelWork, LevelWorks
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.scheduling.attempts import Report

MAX_SAMPLES = 10
"""The samples that are kept of each collection."""
_HARNESS_GRACE_S = 0.1
_MEMORY_S = PROFILED_S + 10.0
_STACKS_S = 7.0  # SDK harnesses have five seconds for it
_TEARDOWN_S = 15.0  # for DoFns to be torn down; SDK harnesses have ten seconds for it


Ask = Callable[[], Mapping[str, str | None]]
"""Asks workers; returns their answers by worker. None: a worker has not answered."""


class Deferrals(NamedTuple):
    """The residuals of one step."""

    number: int = 0
    hold_us: int = MAX_US  # the event time at which they hold the watermark


class LiveTasks:
    """The progress that tasks of the running Spark job have reported.

    It includes the residuals that the last epoch of a streaming pipeline has stored.

    Threads: any.

    Attributes:
        can_be_reported: Whether tasks can reach this program before they end.
        ask_for_stacks, ask_for_memory: See ``TaskTelemetry.stacks`` and ``memory``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[int] = set()
        self._tasks: dict[int, TaskProgress] = {}  # by attempt
        self._stored_residuals: Mapping[TransformId, Deferrals] = {}
        self._works = LevelWorks()
        self._samples: dict[str, deque[str]] = {}  # by collection
        self.can_be_reported = True
        self.ask_for_stacks: Ask = dict
        self.ask_for_memory: Ask = dict

    def note_started(self, run: int, *, is_additional: bool = False) -> None:
        """Drop the progress of earlier Spark jobs, unless the last one still runs.

        Their metrics are in their reports, or their attempts do not count.

        Args:
            run: The number of the next one; 0: none.
            is_additional: Whether the last one still runs.
        """
        with self._lock:
            if not is_additional:
                self._runs.clear()
                self._tasks.clear()
            self._runs.add(run)

    def commit_residuals(self, reports: Iterable[Report]) -> None:
        """Replace the stored residuals of the previous epoch by those of a committed epoch."""
        residuals = _sum_by_step(
            (name, deferred.count, deferred.hold_us)
            for report in reports
            for name, deferred in report.deferred.items()
        )
        with self._lock:
            self._stored_residuals = residuals

    def update(self, progress: Iterable[TaskProgress]) -> None:
        """Store the progress of tasks, unless they belong to another Spark job."""
        progress = list(progress)
        with self._lock:
            for task in progress:
                for sample in task.samples:
                    texts = self._samples.setdefault(sample.collection, deque(maxlen=MAX_SAMPLES))
                    texts.append(sample.text)
            self._tasks.update((task.attempt, task) for task in progress if task.run in self._runs)

    def monitoring_infos(self) -> tuple[bytes, ...]:
        """Return the merged metrics of all running tasks: serialised MonitoringInfos."""
        with self._lock:
            tasks = list(self._tasks.values())
        infos = (info for task in tasks for info in task.monitoring_infos)
        # Metrics that are dropped are named when the tasks have ended.
        return merge(infos, dropped=lambda info, problem: None)

    def note_ended(self, reports: Iterable[Report]) -> None:
        """Note the work of the tasks of a Spark job that has ended."""
        self._works.note(report.work for report in reports if report.work is not None)

    def level_works(self) -> tuple[LevelWork, ...]:
        """Return the slowest tasks of the levels that run, or have run."""
        with self._lock:
            coded = [task.work for task in self._tasks.values() if task.work]
        return self._works.with_running([work_of(TaskWork.FromString(each)) for each in coded])

    def samples(self) -> Mapping[str, tuple[str, ...]]:
        """Return the latest samples of elements, as text, by the id of their collection."""
        with self._lock:
            return {collection: tuple(texts) for collection, texts in self._samples.items()}

    def has_any(self) -> bool:
        """Whether a task of the running Spark job has reported progress."""
        return bool(self._tasks)

    def deferrals(self) -> Mapping[TransformId, Deferrals]:
        """Return the residuals of splittable DoFns, by transform.

        What running tasks report of a transform takes the place of what is stored of it.
        """
        with self._lock:
            tasks, stored = list(self._tasks.values()), self._stored_residuals
        running = _sum_by_step(
            (name, deferred.count, deferred.hold_us)
            for task in tasks
            for name, deferred in task.deferred.items()
        )
        return {**stored, **running}


def _sum_by_step(deferred: Iterable[tuple[str, int, int]]) -> dict[TransformId, Deferrals]:
    """Sum the residuals of several tasks, each given as transform id, number and hold."""
    sums: dict[TransformId, Deferrals] = {}
    for name, number, hold_us in deferred:
        step = TransformId(name)
        previous = sums.get(step, Deferrals())
        sums[step] = Deferrals(previous.number + number, min(previous.hold_us, hold_us))
    return sums


class TaskTelemetry:
    """The driver's side of a job's backchannel. An ``Observer``.

    Attributes:
        offers: What first tasks of segments offer.

    Args:
        job_id: The id of the job.
        messages: Gets the log lines of user code.
        live: Gets the progress of tasks.
        driver: The host to listen at, and the host by which executors reach it. None: the driver
            does not listen.
        folder: The folder that driver and workers share, for workers that cannot reach the driver.
        has_harnesses: Whether there are SDK harnesses, whose log lines reach the workers late.
    """

    def __init__(
        self,
        job_id: str,
        messages: JobMessages,
        live: LiveTasks,
        driver: tuple[str, str] | None,
        folder: Path | None,
        *,
        has_harnesses: bool = False,
    ) -> None:
        self._messages = messages
        self._live = live
        self.offers = Offers()
        self._server = BackchannelServer(
            job_id,
            self._receive,
            listen=None if driver is None else (driver[0], 0),
            advertise="" if driver is None else driver[1],
            folder=folder,
            grace_s=_HARNESS_GRACE_S if has_harnesses else 0.0,
        )
        self.route = self._server.route
        self._answers = StacksAsked()
        live.ask_for_stacks, live.ask_for_memory = self.stacks, self.memory

    def began(self, run: int, *, is_additional: bool = False) -> None:
        """See ``Observer.began``."""
        self._live.note_started(run, is_additional=is_additional)

    def reported(self, reports: Sequence[Report]) -> None:
        """See ``Observer.reported``."""
        self._live.note_started(0)
        self._live.note_ended(reports)
        for report in reports:
            if report.worker:
                self._server.expect(report.worker, report.messages_sent)

    def accepted(self, reports: Sequence[Report]) -> None:
        """See ``Observer.accepted``."""
        self._live.commit_residuals(reports)
        by_worker: dict[str, list[int]] = {}
        for report in reports:
            if report.has_callbacks:
                by_worker.setdefault(report.worker, []).append(report.attempt)
        for worker, attempts in by_worker.items():
            self._server.accept(worker, attempts)

    def _receive(self, worker: str, frame: WorkerFrame) -> None:
        for coded in frame.log_entries:
            entry = beam_fn_api_pb2.LogEntry.FromString(coded)
            self._messages.take_line(worker, entry, is_logged=was_shown(entry))
        if frame.left_out:
            self._messages.leave_out(frame.left_out)
        self._live.update(frame.progress)
        for stacks in frame.stacks:
            self._answers.answered(worker, stacks.request, stacks.text)
        for offer in frame.offers:
            self.offers.put(Offer(offer.run, offer.level, offer.attempt, offer.rows))

    def stacks(self, timeout_s: float = _STACKS_S) -> Mapping[str, str | None]:
        """Return what the running tasks do now, with the stacks of their threads.

        Args:
            timeout_s: How long workers may take to answer.

        Returns:
            By worker, as far as they have sent anything: a text. None: it has not answered.
        """
        request = self._answers.begin()
        workers = self._server.ask(DriverFrame(wants_stacks=request))
        return self._answers.wait(request, workers, timeout_s)

    def memory(self, timeout_s: float = _MEMORY_S) -> Mapping[str, str | None]:
        """Return memory profiles of workers, for some seconds; see ``stacks``."""
        request = self._answers.begin()
        workers = self._server.ask(DriverFrame(wants_memory=request))
        return self._answers.wait(request, workers, timeout_s)

    def end_job(self, timeout_s: float = _TEARDOWN_S) -> None:
        """Have workers tear down their DoFns of the job; wait, and warn of those that are late."""
        late = self._server.end_job(timeout_s)
        if late:
            self._messages.warn(
                f"{len(late)} Python worker(s) have not finished tearing down their DoFns after "
                f"{timeout_s:g} s: "
                f"{', '.join(sorted(late))}"
            )

    def close(self) -> None:
        """Wait a short time for messages in flight, end the job, and stop listening."""
        self._server.settle()
        self.end_job()
        self._server.close()
        self._live.note_started(0)
        self._live.ask_for_stacks = self._live.ask_for_memory = dict
        self._live.commit_residuals(())


def listen(
    prepared: PreparedJob,
    session: Session,
    folder: Path | None,
    messages: JobMessages,
    live: LiveTasks,
) -> TaskTelemetry:
    """Open the backchannel of a job; see ``backchannel.transport``.

    If there can be none, the job runs without, and steps with bundle finalization are warned of.

    Args:
        prepared: The pipeline.
        session: The Spark session in which it runs.
        folder: The folder that driver and workers share. None: there is none.
        messages: See ``TaskTelemetry``.
        live: See ``TaskTelemetry``.
    """
    choice = prepared.config.backchannel
    needs_files = choice == "files" or not session.is_local
    telemetry = TaskTelemetry(
        prepared.job_id,
        messages,
        live,
        session.driver_host() if choice == "auto" else None,
        folder if choice != "off" and needs_files else None,
        has_harnesses=prepared.harnesses is not None,
    )
    if telemetry.route.address is None and telemetry.route.folder is None:
        live.can_be_reported = False
        for step in prepared.plan.graph.transforms.values():
            if step.finalizes_bundles:
                messages.warn(
                    f"{step.name}: callbacks of bundle finalization will not run: workers "
                    "cannot be reached from this program; name a folder that this machine and "
                    "all executors mount (--temp_location)"
                )
    return telemetry

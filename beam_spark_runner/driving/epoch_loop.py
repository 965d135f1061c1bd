"""Runs a streaming plan in epochs, each committed before the next one begins."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    CheckpointStorageError,
    OptionsError,
)
from beam_spark_runner.core.ids import DestinationId, PCollectionId
from beam_spark_runner.driving.cluster import Cluster, Rows
from beam_spark_runner.driving.epoch_manifest import manifest_after, progress_of
from beam_spark_runner.driving.epoch_segments import EpochSegments
from beam_spark_runner.driving.migration import adapted, finished_now
from beam_spark_runner.driving.playback import Events, Playback
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.compatibility import stage_places, step_names
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.payloads import forms_of
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.scheduling.budgets import Budgets
from beam_spark_runner.scheduling.epoch_status import EpochTimes
from beam_spark_runner.scheduling.epochs import Epoch, next_timed_epoch, wait_us
from beam_spark_runner.scheduling.finish import Finishing
from beam_spark_runner.scheduling.patience import outlasting
from beam_spark_runner.scheduling.playback import Elements
from beam_spark_runner.scheduling.slow_clock import SlowClock
from beam_spark_runner.scheduling.stream_status import StreamStatus
from beam_spark_runner.state.blocks import DamagedFileError

_LOGGER = logging.getLogger(__name__)
_LONGEST_SLEEP_S = 60.0  # after it the clock is read again: it may have been set
_ELEMENT_CODER = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSchedule:
    """When epochs run.

    Attributes:
        interval_us: how long an epoch should take; also the least time between the starts of two
            epochs, while sources have no more elements.
        sleep: sleeps for so many seconds, or until the job is to end or to be drained.
        wait: sleeps for so many seconds, or until the job is to end.
        drains: whether the job is to be drained.
        drain: requests a drain, to complete that of an earlier run.
    """

    interval_us: int
    sleep: Callable[[float], object]
    wait: Callable[[float], object]
    drains: Callable[[], bool]
    drain: Callable[[], None]


def run_epochs(
    plan: Plan,
    settings: RunSettings,
    cluster: Cluster,
    tally: RunMetrics,
    checkpoints: Checkpoints,
    pace: EpochSchedule,
    events: Events | None,
) -> bool:
    """Run epochs until the pipeline is done; go on after the newest one that is committed.

    Args:
        plan: the streaming plan.
        settings: how it runs.
        cluster: on which it runs.
        tally: gets its metrics.
        checkpoints: where epochs are committed.
        pace: when epochs run.
        events: the events of the plan's TestStreams; None: it has none.

    Returns:
        Whether the pipeline was drained, in this run or an earlier one.

    Raises:
        BundleFailedError: user code failed in all attempts at a task.
        SparkJobError: the cluster failed a segment, or it has run too often without being accepted.
        IncompatibleCheckpointError: the checkpoint belongs to another pipeline.
        FencedError: another driver has taken the pipeline over.
    """
    if not plan.segments:  # a TestStream, and nothing that reads it
        return pace.drains()
    run = _StreamRun(plan, settings, cluster, tally, checkpoints, pace, events)
    with run.leaving_nothing():
        run.adapt()
        while run.step():
            settings.check_cancelled()
    return run.was_drained


class _StreamRun:
    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        checkpoints: Checkpoints,
        pace: EpochSchedule,
        events: Events | None,
    ) -> None:
        self._plan, self._settings, self._tally, self._pace = plan, settings, tally, pace
        self._cluster = cluster
        self._segments = EpochSegments(plan, settings, cluster, tally)
        self._metrics_of = plan.segments[0].id  # under it are the metrics of all segments
        self._playback, self._played = _played(plan, settings, events)
        self._lags = [
            int(id_)
            for id_, destination in plan.destinations.items()
            if destination.stage is not None
            and plan.stages[destination.stage].is_stable
            and not plan.stages[destination.stage].is_splittable
        ]
        self._began_ns = -pace.interval_us * 1_000  # when the last epoch began, monotonic
        self._since_ns = time.monotonic_ns()  # the same; when the driver began, before the first
        self._slow_clock = SlowClock()
        self._budgets = Budgets(pace.interval_us)
        self._status = StreamStatus(plan)
        partitions = settings.least_partitions
        self._finishing = finishing = Finishing(plan, partitions)
        self._checkpoints_after_tasks_finish = checkpoints.after_tasks_finish
        self._version = version = PipelineVersion(
            plan=stage_places(plan, forms_of), steps=step_names(plan), renamed=checkpoints.renamed
        )
        self._start = DriverStart(
            checkpoints,
            version,
            partitions,
            lambda last: finishing.contradictions(finished_now(last, version, finishing)),
        )
        if self._last.epoch:
            _LOGGER.info("continuing after epoch %d", self._last.epoch)
            settings.on_continue(self._last.epoch)
        self._start.sweep()  # the driver before may have ended without it
        self._sweeper = ThreadPoolExecutor(1, "beam-sweep")
        self._sweep: Future[None] | None = None  # after the last commit, while the next epoch runs

    @property
    def _last(self) -> Manifest:
        """The newest manifest."""
        return self._start.manifest

    @property
    def was_drained(self) -> bool:
        """Whether the pipeline was drained by now."""
        return self._last.drains

    def adapt(self) -> None:
        """Adapt the checkpoint of an earlier run with another version or number of partitions."""
        if left := self._outlasting(self._start.superseding):
            self._outlasting(lambda: self._start.commit(left))
        # A driver that is fenced off meanwhile may have committed one more epoch, not adapted.
        while mine := self._outlasting(self._adapted):
            self._outlasting(functools.partial(self._start.commit, mine))
        if self._last.is_final:
            _LOGGER.warning(
                "nothing is left to do: an earlier run has completed this pipeline, with epoch %d. "
                "Another --checkpoint_dir starts it anew",
                self._last.epoch,
            )
        elif self._last.drains:
            self._pace.drain()
        self._tally.accepted[self._metrics_of] = self._last.metrics

    def _adapted(self) -> Manifest | None:
        return adapted(
            self._plan,
            self._settings,
            self._cluster,
            self._last,
            self._version,
            self._finishing,
        )

    def step(self) -> bool:
        """Run one epoch and commit it; False if none was left."""
        epoch = self._next()
        if epoch is None:
            self._end_sweep()
            return False
        last = self._last
        self._began_ns = self._since_ns = time.monotonic_ns()
        budget_us = self._budgets.longest_us
        levels = self._finishing.levels(last.finished)
        rows = self._rows(epoch)
        given_ns = time.monotonic_ns()
        reports = self._outlasting(
            lambda: self._segments.run(epoch.number, last.fence, rows, levels)
        )
        ran_ns = time.monotonic_ns()
        infos = [info for report in reports for info in report.monitoring_infos]
        mine = manifest_after(
            last,
            epoch,
            reports,
            metrics=self._tally.merged([*last.metrics, *infos]),
            finishing=self._finishing,
            lags=self._lags,
        )
        self._check_finished(mine)
        self._end_sweep()
        committed = self._outlasting(lambda: self._start.commit(mine))
        self._tally.accepted[self._metrics_of] = committed.metrics
        self._sweep = self._sweeper.submit(self._start.sweep)
        took_us = (time.monotonic_ns() - self._began_ns) // 1_000
        if committed == mine:
            self._settings.observer.accepted(reports)
            planning_ns = self._segments.planning_ns
            took = EpochTimes(
                total_us=took_us,
                planning_us=(given_ns - self._began_ns + planning_ns) // 1_000,
                jobs_us=(ran_ns - given_ns - planning_ns) // 1_000,
                budget_us=budget_us,
            )
            self._settings.on_epoch(
                self._status.after(
                    mine.epoch,
                    reports,
                    clock_us=mine.clock_us,
                    watermarks_us=mine.watermarks_us,
                    finished=mine.finished,
                    took=took,
                )
            )
        else:
            _LOGGER.warning("epoch %d was committed by an earlier start", epoch.number)
            self._end_sweep()
            self.adapt()
        self._budgets.after(took_us, reports)
        return True

    @contextlib.contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """End the thread that sweeps; after an error, delete the rows of the epoch that ran."""
        try:
            yield
        except BaseException:
            self._sweeper.shutdown()
            try:
                self._start.give_up()
            except CheckpointStorageError as error:
                _LOGGER.warning("stored rows of an epoch remain until the next start: %s", error)
            raise
        finally:
            self._sweeper.shutdown()

    def _end_sweep(self) -> None:
        """Wait until the files that the last commit superseded are deleted."""
        sweep, self._sweep = self._sweep, None
        if sweep is None:
            return
        try:
            sweep.result()
        except CheckpointStorageError:
            self._outlasting(self._start.sweep)

    def _outlasting(self, work: Callable[[], _Result]) -> _Result:
        """Do work that may be repeated, and repeat it while storage is full or unavailable."""
        try:
            return outlasting(work, time.monotonic, _LOGGER.warning, self._pause)
        except DamagedFileError:
            self._start.check_fence()  # a later driver deletes what it does not need
            raise

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(CheckpointStorageError):
            self._start.check_fence()
        self._pace.wait(seconds)
        self._settings.check_cancelled()

    def _check_finished(self, mine: Manifest) -> None:
        if self._checkpoints_after_tasks_finish:
            return
        if names := self._finishing.finished_early(mine.finished):
            raise OptionsError(
                "checkpoints_after_tasks_finish",
                f"is false, so epoch {mine.epoch} cannot be committed: {', '.join(names)} has "
                "finished, or some of its tasks have, while other steps go on",
            )

    def _next(self) -> Epoch | None:
        """Return the next epoch once its time has come; None: the pipeline is done."""
        progress = progress_of(self._last)
        if self._playback is not None:
            return self._playback.next_epoch(progress, self._pace.drains)
        while True:
            now_us = time.time_ns() // 1_000
            warning = self._slow_clock.warning(processing_us=self._last.clock_us, now_us=now_us)
            if warning is not None:
                _LOGGER.warning(warning)
            epoch = next_timed_epoch(progress, now_us, drains=self._pace.drains())
            if epoch is None:
                return None
            rest_us = 0
            if self._budgets.were_enough:
                rest_us = self._pace.interval_us - (time.monotonic_ns() - self._began_ns) // 1_000
            passed_us = (time.monotonic_ns() - self._since_ns) // 1_000
            left_us = wait_us(progress, epoch, now_us, rest_us, passed_us=passed_us)
            if not left_us:
                return epoch
            self._pace.sleep(min(left_us / 1e6, _LONGEST_SLEEP_S))
            self._settings.on_idle()
            self._settings.check_cancelled()

    def _rows(self, epoch: Epoch) -> Rows:
        """Return the rows for the first level: the epoch's mark, and elements of its sources."""
        watermarks = {} if self._playback is None else self._playback.after(epoch).watermarks_us
        mark = reports_pb2.AttemptMark(
            epoch=reports_pb2.Epoch(
                number=epoch.number,
                fence=self._last.fence,
                clock_us=epoch.clock_us,
                committed_clock_us=self._last.clock_us,
                heads=[
                    reports_pb2.ShardHead(
                        level=level,
                        partition=partition,
                        epoch=head.delta.epoch,
                        attempt=head.delta.attempt,
                    )
                    for (level, partition), head in self._last.heads.items()
                ],
                watermarks_us=self._last.watermarks_us,
                clock_stands=self._playback is not None,
                budget_us=self._budgets.sources_us,
                due_us=self._budgets.due_us,
                drains=epoch.drains,
                views=[
                    reports_pb2.View(dest=id_.dest, window=id_.window, file=view.file)
                    for id_, view in sorted(self._last.views.items())
                ],
            ),
            watermarks_us={int(dest): watermarks[output] for dest, output in self._played.items()},
        )
        rows = [(schema.CONTROL, mark.SerializeToString())]
        if epoch.feeds_impulses:
            rows += [(int(dest), b"") for dest in self._plan.segments[0].impulses]
        else:
            rows += [(dest, b"") for dest in self._last.unfed]
        if isinstance(epoch.event, Elements):
            rows += [
                (int(dest) | schema.WINDOWED, _ELEMENT_CODER.encode(_windowed(*element)))
                for dest, output in self._played.items()
                if output == epoch.event.output
                for element in epoch.event.elements
            ]
        return rows


def _windowed(coded: bytes, timestamp_us: int) -> WindowedValue:
    return WindowedValue(coded, Timestamp(micros=timestamp_us), (GlobalWindow(),))


def _played(
    plan: Plan, settings: RunSettings, events: Events | None
) -> tuple[Playback | None, Mapping[DestinationId, PCollectionId]]:
    """Return how far the plan's TestStreams are played, and the output that each destination reads.

    None: the plan has none.
    """
    streams = [each for each in plan.graph.transforms.values() if each.urn == urns.TEST_STREAM]
    if not streams:
        return None, {}
    assert events is not None
    outputs = [output for each in streams for output in each.outputs.values()]
    steps = ", ".join(each.name for each in streams)
    read = {dest: plan.destinations[dest].arriving for dest in plan.segments[0].test_streams}
    return Playback(events, outputs, steps, settings.check_cancelled), read

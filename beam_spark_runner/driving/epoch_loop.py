"""Runs a streaming pipeline in epochs, each committed before the next one begins."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from apache_beam.coders import BytesCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.driving.appended_tables import AppendedTables
from beam_spark_runner.driving.clock import Clock, Pending
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.epoch_manifest import manifest_after, progress_of
from beam_spark_runner.driving.epoch_mark import described_epoch
from beam_spark_runner.driving.epoch_protocols import EpochObserver, EpochSchedule, InPartitions
from beam_spark_runner.driving.playback import Playback
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.shard_migration import adapted, finished_now
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.observing.epoch_status import EpochTimes
from beam_spark_runner.observing.slow_clock import SlowClock
from beam_spark_runner.observing.troubles import TroubleKind
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.scheduling.budgets import Budgets
from beam_spark_runner.scheduling.epochs import Epoch, next_timed_epoch, wait_us
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.scheduling.test_stream_events import Elements
from beam_spark_runner.state.checked_blocks import DamagedFileError
from beam_spark_runner.state.remote.key_store import OvertakenError

_LOGGER = logging.getLogger(__name__)
_LONGEST_SLEEP_S = 60.0  # after it the clock is read again: it may have been set
_ELEMENT_CODER = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
_Result = TypeVar("_Result")


class EpochLoop:
    """Runs one epoch after another, on a cluster.

    Threads: one.

    Args:
        in_partitions: returns what runs the plan in a number of partitions.
        settings: how the pipeline runs.
        cluster: makes new shards, if the number of partitions has changed.
        observer: is notified of commits.
        checkpoints: where epochs are committed.
        pace: when epochs run.
        clock: of this machine.
        playback: the TestStreams of the plan; None: it has none.

    Raises:
        IncompatibleCheckpointError: the checkpoint belongs to another pipeline.
        FencedError: another driver has taken the pipeline over.
    """

    def __init__(
        self,
        in_partitions: Callable[[int], InPartitions],
        settings: RunSettings,
        cluster: Cluster,
        observer: EpochObserver,
        checkpoints: Checkpoints,
        pace: EpochSchedule,
        clock: Clock,
        playback: Playback | None,
    ) -> None:
        self._in_partitions, self._settings, self._cluster = in_partitions, settings, cluster
        self._rules, self._runner = in_partitions(settings.least_partitions)
        self._observer = observer
        self._pace, self._clock, self._playback = pace, clock, playback
        self._began_ns = -pace.interval_us * 1_000  # when the last epoch began, monotonic
        self._since_ns = clock.monotonic_ns()  # the same; when the driver began, before the first
        self._slow_clock = SlowClock()
        self._appended = AppendedTables(self._rules.tables, settings, cluster)
        self._budgets = Budgets(pace.interval_us)
        self._checkpoints_after_tasks_finish = checkpoints.after_tasks_finish
        version = self._rules.version

        def contradictions(last: Manifest) -> tuple[str, ...]:
            finishing = self._rules.finishing
            return finishing.contradictions(finished_now(last, version, finishing))

        self._start = DriverStart(checkpoints, version, self._rules.partitions, contradictions)
        if self._last.epoch:
            observer.continues(self._last)
        self._start.sweep()  # the previous driver may have ended without it
        self._sweep: Pending | None = None  # after the last commit, while the next epoch runs

    def run(self) -> bool:
        """Run epochs until the pipeline is done; continue after the newest one that is committed.

        Returns:
            Whether the pipeline was drained, in this run or an earlier one.

        Raises:
            BundleFailedError: user code failed in all attempts at a task.
            SparkJobError: the cluster failed a segment, or it has run too often without being
                accepted.
            FencedError: another driver has taken the pipeline over.
        """
        with self._leaving_nothing(), contextlib.closing(self._appended):
            if self._last.epoch:
                self._rescale(self._last.partitions)
            self._adapt()
            self._write_tables()
            while self.step():
                self._settings.check_cancelled()
                if self._rescale(self._rules.partitions):
                    self._end_sweep()
                    self._adapt()
                    self._write_tables()
        return self._last.drains

    @property
    def _last(self) -> Manifest:
        """The newest manifest."""
        return self._start.manifest

    def _adapt(self) -> None:
        """Adapt the checkpoint of an earlier run with another version or number of partitions."""
        if left := self._outlasting(self._start.superseding):
            self._outlasting(lambda: self._start.commit(left))
        # A driver that is fenced off meanwhile may have committed one more epoch, not adapted.
        while mine := self._outlasting(self._adapted):
            self._outlasting(functools.partial(self._start.commit, mine))
        if own := self._outlasting(self._start.in_own_namespace):
            self._commit_namespace(own)
        self._outlasting(self._start.remove_left_namespaces)
        if self._last.is_final and not self._last.unwritten:
            _LOGGER.warning(
                "nothing is left to do: an earlier run has completed this pipeline, with epoch %d. "
                "Another --checkpoint_dir starts it from the beginning",
                self._last.epoch,
            )
        elif self._last.drains:
            self._pace.drain()
        self._observer.committed(self._last)

    def _rescale(self, partitions: int) -> bool:
        """Run the epochs from now on in the number of partitions that should follow this one.

        Returns:
            Whether it differs from the number of the last epoch that this loop has run.
        """
        if self._settings.rescaled is None or self._last.is_final:
            return False
        wanted = self._settings.rescaled(partitions)
        if wanted == self._rules.partitions:
            return False
        self._rules, self._runner = self._in_partitions(wanted)
        return True

    def _leave_namespace(self) -> None:
        """Continue in another namespace of the state store."""
        self._commit_namespace(self._outlasting(self._start.in_new_namespace))
        self._adapt()

    def _commit_namespace(self, mine: Manifest) -> None:
        if mine.epoch:
            self._outlasting(lambda: self._start.commit(mine))
        else:
            self._start.manifest = mine

    def _write_tables(self) -> None:
        """Write the rows for tables that the newest manifest names."""
        if not self._last.unwritten:
            return
        self._outlasting(lambda: self._appended.write(self._last, self._start.check_fence))
        if self._last.is_final:  # no further epoch notes that they are written
            last = dataclasses.replace(
                self._last, epoch=self._last.epoch + 1, parent=self._last.epoch, unwritten=()
            )
            self._end_sweep()
            self._outlasting(lambda: self._start.commit(last))
            self._sweep = self._pace.background.submit(self._start.sweep)

    def _adapted(self) -> Manifest | None:
        return adapted(
            self._rules, self._settings, self._cluster, self._last, self._start.namespace
        )

    def step(self) -> bool:
        """Run one epoch and commit it; False if none was left."""
        epoch = self._next()
        if epoch is None:
            self._end_sweep()
            return False
        last = self._last
        self._began_ns = self._since_ns = self._clock.monotonic_ns()
        budget_us = self._budgets.longest_us
        levels = self._rules.finishing.levels(last.finished)
        rows = self._rows(epoch)
        given_ns = self._clock.monotonic_ns()
        try:
            reports = self._outlasting(
                lambda: self._runner.run(epoch.number, last.fence, rows, levels)
            )
        except OvertakenError as error:
            self._end_sweep()
            self._outlasting(self._start.check_fence)  # another driver may have continued
            _LOGGER.warning("%s; all keys are copied to it again", error)
            self._leave_namespace()
            self._write_tables()
            return True
        ran_ns = self._clock.monotonic_ns()
        infos = [info for report in reports for info in report.monitoring_infos]
        mine = manifest_after(
            last,
            epoch,
            reports,
            metrics=self._observer.merged(last.metrics, infos),
            unwritten=self._appended.unwritten(last, epoch.number, reports),
            finishing=self._rules.finishing,
            lags=self._rules.lags,
        )
        self._check_finished(mine)
        self._end_sweep()
        committed = self._outlasting(lambda: self._start.commit(mine))
        self._observer.committed(committed)
        self._sweep = self._pace.background.submit(self._start.sweep)
        if committed == mine:
            self._write_tables()
        took_us = self._passed_us(self._began_ns)
        if committed == mine:
            planning_ns = self._runner.planning_ns
            took = EpochTimes(
                total_us=took_us,
                planning_us=(given_ns - self._began_ns + planning_ns) // 1_000,
                jobs_us=(ran_ns - given_ns - planning_ns) // 1_000,
                budget_us=budget_us,
            )
            self._observer.took(mine, reports, took)
        else:
            _LOGGER.warning("epoch %d was committed by an earlier start", epoch.number)
            self._end_sweep()
            self._adapt()
            self._write_tables()
        self._budgets.choose_next(took_us, reports)
        return True

    @contextlib.contextmanager
    def _leaving_nothing(self) -> Iterator[None]:
        """After an error, delete the rows of the epoch that ran."""
        try:
            yield
        except BaseException:
            if self._sweep is not None:
                with contextlib.suppress(Exception):  # the next start sweeps again
                    self._sweep.result()
            try:
                self._start.give_up()
            except CheckpointStorageError as error:
                _LOGGER.warning("stored rows of an epoch remain until the next start: %s", error)
            raise

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

        def attempt() -> _Result:
            try:
                return work()
            except DamagedFileError:
                # A later driver deletes what it does not need; or the whole folder is away.
                self._start.check_fence()
                raise

        return retry_while_unavailable(attempt, self._now_s, self._lacks_storage, self._pause)

    def _lacks_storage(self, text: str) -> None:
        self._settings.on_trouble(TroubleKind.STORAGE, text)

    def _passed_us(self, since_ns: int) -> int:
        return (self._clock.monotonic_ns() - since_ns) // 1_000

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _pause(self, seconds: float) -> None:
        with contextlib.suppress(CheckpointStorageError):
            self._start.check_fence()
            self._start.claim_again()
        self._pace.wait(seconds)
        self._settings.check_cancelled()

    def _check_finished(self, mine: Manifest) -> None:
        if self._checkpoints_after_tasks_finish:
            return
        if names := self._rules.finishing.finished_early(mine.finished):
            raise OptionsError(
                "checkpoints_after_tasks_finish",
                f"is false, so epoch {mine.epoch} cannot be committed: {', '.join(names)} has "
                "finished, or some of its tasks have, while other steps continue",
            )

    def _next(self) -> Epoch | None:
        """Return the next epoch once its time has come; None: the pipeline is done."""
        progress = progress_of(self._last)
        if self._playback is not None:
            return self._playback.next_epoch(progress, self._pace.drains)
        while True:
            now_us = self._clock.now_us()
            warning = self._slow_clock.warning(processing_us=self._last.clock_us, now_us=now_us)
            if warning is not None:
                _LOGGER.warning(warning)
            epoch = next_timed_epoch(progress, now_us, drains=self._pace.drains())
            if epoch is None:
                return None
            rest_us = 0
            if self._budgets.were_enough:
                rest_us = self._pace.interval_us - self._passed_us(self._began_ns)
            passed_us = self._passed_us(self._since_ns)
            left_us = wait_us(progress, epoch, now_us, rest_us, passed_us=passed_us)
            if not left_us:
                return epoch
            self._pace.sleep(min(left_us / 1e6, _LONGEST_SLEEP_S))
            self._settings.on_idle()
            self._settings.check_cancelled()

    def _rows(self, epoch: Epoch) -> Rows:
        """Return the rows for the first level: the epoch's mark, and elements of its sources."""
        watermarks = {} if self._playback is None else self._playback.after(epoch).watermarks_us
        played = self._rules.played.items()
        mark = reports_pb2.AttemptMark(
            epoch=described_epoch(
                self._last,
                epoch,
                clock_stands=self._playback is not None,
                budget_us=self._budgets.sources_us,
                due_us=self._budgets.due_us,
            ),
            watermarks_us={int(dest): watermarks[output] for dest, output in played},
        )
        rows = [(schema.CONTROL, mark.SerializeToString())]
        if epoch.feeds_impulses:
            rows += [(dest, b"") for dest in self._rules.impulses]
        else:
            rows += [(dest, b"") for dest in self._last.unfed]
        if isinstance(epoch.event, Elements):
            rows += [
                (int(dest) | schema.WINDOWED, _ELEMENT_CODER.encode(_windowed(*element)))
                for dest, output in played
                if output == epoch.event.output
                for element in epoch.event.elements
            ]
        return rows


def _windowed(coded: bytes, timestamp_us: int) -> WindowedValue:
    return WindowedValue(coded, Timestamp(micros=timestamp_us), (GlobalWindow(),))

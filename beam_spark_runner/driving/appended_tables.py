"""Writes the tables of a streaming pipeline: the rows of each epoch, once it is committed."""

from collections.abc import Callable, Mapping, Sequence

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.triage import Attempt, attempt
from beam_spark_runner.recovery.begun_writes import TargetState
from beam_spark_runner.recovery.epoch_writes import EpochWrite, RowsOfTask, unwritten_after
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import Accepted, Report, Verdict

_WRITE = SegmentId(0)  # each write is counted for itself


class AppendedTables:
    """The tables to which one run appends.

    A table gets the rows of an epoch after the manifest that names them, so that they are those
    of the accepted attempts, and before the next epoch begins. The next manifest notes the write.
    If the driver dies in between, the next one asks the table whether it has the rows.

    Threads: one.

    Args:
        steps: by destination: the name of the step that writes a table.
        settings: how the pipeline runs.
        cluster: has the tables.
    """

    def __init__(self, steps: Mapping[int, str], settings: RunSettings, cluster: Cluster) -> None:
        self._steps, self._settings, self._cluster = steps, settings, cluster
        self._written: set[EpochWrite] = set()  # those that the newest manifest still names
        self._untried: set[EpochWrite] = set()  # of epochs of this run

    def unwritten(
        self, last: Manifest, number: int, reports: Sequence[Report]
    ) -> tuple[EpochWrite, ...]:
        """Return what is to be written once an epoch is committed.

        Args:
            last: the previous manifest.
            number: the number of the epoch.
            reports: the reports of its accepted tasks.

        Raises:
            SparkJobError: a table cannot be looked at.
        """
        made = [
            RowsOfTask(self._steps[each.dest], each.file, each.rows)
            for report in reports
            for each in report.table_rows
        ]
        states = {step: self._state(step, number) for step in {each.step for each in made}}
        left = unwritten_after(last.unwritten, self._written, last.chain, number, made, states)
        self._untried = {each for each in left if each.epoch == number}
        return left

    def write(self, manifest: Manifest, check_fence: Callable[[], None]) -> None:
        """Write what a manifest names, and is not written yet.

        Args:
            manifest: the newest one, which is committed.
            check_fence: raises if another driver has taken the pipeline over.

        Raises:
            SparkJobError: a table refuses the rows or cannot be looked at, or Spark fails again and
                again.
            UnknownEpochWriteError: the table does not say whether it has the rows.
        """
        self._written.intersection_update(manifest.unwritten)
        for write in manifest.unwritten:
            if write not in self._written:
                self._write(write, check_fence)
                self._written.add(write)

    def close(self) -> None:
        """Remove what has helped to write the tables: the run has ended, or has failed."""
        for step in set(self._steps.values()):
            self._cluster.tables.to_append(step).close()

    def _state(self, step: str, epoch: int) -> TargetState:
        table = self._cluster.tables.to_append(step)
        found: list[TargetState] = []
        self._run(
            step, f"epoch {epoch}: {step} before its write", lambda: found.append(table.state())
        )
        return found[-1]

    def _write(self, write: EpochWrite, check_fence: Callable[[], None]) -> None:
        table = self._cluster.tables.to_append(write.step)

        def append() -> None:
            is_untried = write in self._untried
            self._untried.discard(write)
            if is_untried or not table.is_written(write):
                check_fence()
                table.append(write, self._settings.shards)

        self._run(write.step, f"epoch {write.epoch}: {write.step}", append)

    def _run(self, step: str, title: str, work: Callable[[], None]) -> None:
        """Have the cluster do work for a step, again if machines were lost."""

        def run() -> Verdict:
            with self._cluster.scope(title):
                work()
            return Accepted()

        order = segments.SegmentOrder({_WRITE: frozenset()})
        action = order.start()
        while not isinstance(action, segments.FinishPlan):
            self._settings.check_cancelled()
            if isinstance(action, segments.GiveUp):
                raise SparkJobError(step, action.reason)
            event = attempt(
                Attempt(
                    segment=_WRITE,
                    cluster=self._cluster,
                    title=title,
                    run=run,
                    check_cancelled=self._settings.check_cancelled,
                    on_trouble=self._settings.on_trouble,
                    blamed_for=lambda error: step,
                    reason_for=self._cluster.tables.to_append(step).reason_for,
                )
            )
            action = order.on(event)

"""Runs a plan: one Spark job after another, each accepted before the next begins."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from beam_spark_runner.core.errors import (
    RunnerError,
    SparkJobError,
    StuckBundleError,
)
from beam_spark_runner.core.ids import DestinationId, SegmentId, TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.portable.monitoring import residual_gauges
from beam_spark_runner.scheduling import rounds, segments
from beam_spark_runner.scheduling.attempts import (
    Accepted,
    Ambiguous,
    Failed,
    Rejected,
    Report,
    Verdict,
)
from beam_spark_runner.scheduling.outputs import SegmentOutput
from beam_spark_runner.scheduling.partitions import derive_partitions
from beam_spark_runner.spark.driver.gather import GatherSettings, gather
from beam_spark_runner.spark.driver.outputs import AmbiguousRowsError, OutputRows, Outputs
from beam_spark_runner.spark.driver.program_builder import ProgramBuilder
from beam_spark_runner.spark.driver.rows_to_write import rows_to_write
from beam_spark_runner.spark.driver.run_context import RunMetrics, RunSettings
from beam_spark_runner.spark.driver.segment_job import (
    JobResult,
    SegmentJob,
    SegmentJobs,
    fed_rows,
    one_row,
    segment_title,
)
from beam_spark_runner.spark.driver.spark_errors import machines_were_lost, reason_of
from beam_spark_runner.spark.program import SideInputRows
from beam_spark_runner.spark.rows.reports import error_of

_LOGGER = logging.getLogger(__name__)


def run_plan(plan: Plan, settings: RunSettings, tally: RunMetrics) -> None:
    """Run all segments.

    Raises:
        BundleFailedError: user code failed in all attempts that Spark makes at a task.
        SparkJobError: Spark failed a segment, or it has run too often without being accepted.
    """
    run = _PlanRun(plan, settings, tally)
    by_id = {segment.id: segment for segment in plan.segments}
    order = segments.SegmentOrder(_reads(plan))
    action = order.start()
    while not isinstance(action, segments.Finish):
        settings.check_cancelled()
        segment = by_id[action.segment]
        if isinstance(action, segments.GiveUp):
            raise SparkJobError(segment_title(plan, segment), action.reason)
        run.forget(action.forget)
        action = order.on(run.run_segment(segment))


def _reads(plan: Plan) -> Mapping[SegmentId, frozenset[SegmentId]]:
    """Return the segments whose rows each segment reads, or gathers as side inputs."""
    return {
        segment.id: frozenset(
            [writer for writers in segment.reads.values() for writer in writers]
            + [
                other.id
                for other in plan.segments
                if not other.writes.keys().isdisjoint(segment.side_inputs)
            ]
        )
        for segment in plan.segments
    }


class _PlanRun:
    def __init__(self, plan: Plan, settings: RunSettings, tally: RunMetrics) -> None:
        self._plan = plan
        self._settings = settings
        self._tally = tally
        self._builder = ProgramBuilder(plan, settings.job_id, settings.limits)
        self._outputs = Outputs()
        self._gathered: dict[DestinationId, SideInputRows] = {}
        self._runs = 0
        self._jobs = SegmentJobs(plan, settings, self._builder)

    def forget(self, stale: Iterable[SegmentId]) -> None:
        """Drop the outputs of segments, and their metrics."""
        for segment in self._plan.segments:
            if segment.id in stale:
                self._outputs.forget(segment.id)
                self._tally.accepted.pop(segment.id, None)
                for dest in segment.writes:
                    self._gathered.pop(dest, None)

    def run_segment(self, segment: Segment) -> segments.Event:
        """Run one segment once."""
        self._settings.on_segment(segment.id)
        if segment.table_write is not None:
            return self._write_table(segment, segment.table_write)
        source, fed = self._source(segment)
        if source is None:
            # It has no input: no segment upstream has any rows for it.
            return segments.Ran(segment.id)
        title = segment_title(self._plan, segment)
        self._jobs.forget_last()
        try:
            self._gather_side_inputs(segment)
            with self._settings.job_scope(title), self._settings.materialiser.beside(segment):
                verdict = self._run_rounds(segment, source, fed)
        except RunnerError:
            raise
        except AmbiguousRowsError as error:
            verdict = error.verdict
        except Exception as error:
            self._settings.check_cancelled()
            if stuck := StuckBundleError.found_in(str(error)):
                raise stuck from error
            if not machines_were_lost(error):
                blamed = self._jobs.steps_blamed_for(segment, error)
                raise SparkJobError(blamed, reason_of(error)) from error
            return self._after_crash(segment, title, reason_of(error))
        match verdict:
            case Accepted():
                return segments.Ran(segment.id)
            case Failed(failure):
                raise error_of(failure)
            case Ambiguous():
                return self._after_ambiguous(segment, title, verdict)
            case Rejected(why):
                _LOGGER.warning("%s runs again: %s", title, why)
                return segments.Rejected(segment.id, why)

    def _after_ambiguous(
        self, segment: Segment, title: str, verdict: Ambiguous
    ) -> segments.Lost | segments.Rejected:
        """Have the segments run again whose rows this one read; if there are none, only itself."""
        if writers := self._outputs.writers_of(verdict.runs):
            _LOGGER.warning(
                "%s: rows of %d earlier Spark job(s) are computed again: %s",
                *(title, len(writers), verdict.reason),
            )
            return segments.Lost(segment.id, writers, verdict.reason)
        _LOGGER.warning("%s runs again: %s", title, verdict.reason)
        return segments.Rejected(segment.id, verdict.reason)

    def _write_table(self, segment: Segment, step: TransformId) -> segments.Event:
        """Write what other segments have materialised."""
        tables = self._settings.tables
        if step in tables.results:
            return segments.Ran(segment.id)  # its rows were computed again for others
        write = tables.writes[step]
        title = segment_title(self._plan, segment)
        if write.is_skipped:
            tables.results[step] = write.skip()
            return segments.Ran(segment.id)
        parts = self._outputs.for_reader(segment.reads)
        (dest,) = segment.reads
        try:
            with self._settings.job_scope(title):
                rows = rows_to_write(OutputRows.union(parts), dest) if parts else None
                is_again = step in tables.begun
                tables.begun.add(step)
                tables.results[step] = write.run(rows, is_again=is_again)
        except AmbiguousRowsError as error:
            return self._after_ambiguous(segment, title, error.verdict)
        except Exception as error:
            self._settings.check_cancelled()
            may_run_again = step not in tables.begun or write.may_run_again()
            if not machines_were_lost(error) or not may_run_again:
                raise SparkJobError(write.step, write.reason_for(error)) from error
            return self._after_crash(segment, title, reason_of(error))
        return segments.Ran(segment.id)

    def _run_rounds(
        self, segment: Segment, source: OutputRows, fed: Mapping[DestinationId, bytes]
    ) -> Verdict:
        """Run the Spark jobs that a segment takes: one, unless splittable DoFns leave something."""
        budget_s = None
        if self._builder.has_rounds(segment) and (
            self._partitions(segment) > 1 or self._builder.finalizes(segment)
        ):
            budget_s = self._settings.round_budget_s
        machine = rounds.Rounds(len(segment.levels), budget_s or 0.0)
        action = machine.start()
        made: list[JobResult] = []
        last: Sequence[Report] = ()
        all_infos: list[bytes] = []
        while not isinstance(action, rounds.Finish):
            self._settings.check_cancelled()
            match action:
                case rounds.RunLevels(first=first):
                    levels = range(first, len(segment.levels))
                    if made:
                        hosted = [
                            edge.dest for i in levels for edge in self._builder.readers(segment, i)
                        ]
                        rows = OutputRows.union([each.rows for each in made])
                        source = rows.rows_for(hosted)
                case rounds.RunRound(level=level, number=number):
                    levels = range(level, level + 1)
                    count = sum(each.count for report in last for each in report.residuals.values())
                    _LOGGER.info("round %d: %d restriction(s) are left", number, count)
                    source = made[-1].rows.rows_for(self._left(last))
            self._runs += 1
            result = self._jobs.run(
                SegmentJob(
                    run=self._runs,
                    segment=segment,
                    levels=levels,
                    source=source,
                    fed={} if made else fed,
                    side_inputs=self._gathered,
                    partitions=self._partitions(segment),
                    materialises=bool(segment.writes) or budget_s is not None,
                    round_budget_s=budget_s and action.budget_s,
                    is_round=isinstance(action, rounds.RunRound),
                )
            )
            last = result.reports
            infos = [info for report in last for info in report.monitoring_infos]
            if made or self._left(last):
                infos += self._gauges(segment, last)
            self._tally.attempted = self._tally.merged([*self._tally.attempted, *infos])
            self._settings.observer.reported(last)
            if not isinstance(result.verdict, Accepted):
                return result.verdict
            self._settings.observer.accepted(last)
            made.append(result)
            all_infos += infos
            action = machine.on(rounds.Ran(self._level_of(segment, self._left(last))))
        metrics = self._tally.accepted[segment.id] = self._tally.merged(all_infos)
        if segment.writes:
            self._outputs.add(
                segment.id,
                SegmentOutput(
                    parts=tuple(each.part for each in made),
                    size_bytes=sum(each.emitted_bytes for each in made),
                    monitoring_infos=metrics,
                ),
                OutputRows.union([each.rows for each in made]),
            )
        return Accepted()

    def _gauges(self, segment: Segment, reports: Sequence[Report]) -> list[bytes]:
        """Return gauges of the residuals that a segment has left for the next round."""
        infos: list[bytes] = []
        for stage in (self._plan.stages[id_] for level in segment.levels for id_ in level.stages):
            if stage.is_splittable:
                dest = self._builder.input_of(stage.id)
                left = [each.residuals[dest] for each in reports if dest in each.residuals]
                count = sum(each.count for each in left)
                hold_us = min((each.hold_us for each in left), default=MAX_US)
                gauges = residual_gauges(stage.transforms[0], count, hold_us, _now_ms())
                infos += [gauge.SerializeToString() for gauge in gauges]
        return infos

    def _left(self, reports: Iterable[Report]) -> list[DestinationId]:
        """Return the destinations whose restrictions have not all been processed."""
        return [DestinationId(dest) for dest in {d for each in reports for d in each.residuals}]

    def _level_of(self, segment: Segment, dests: Sequence[DestinationId]) -> int | None:
        """Return the level that reads ``dests``, the first if there are several."""
        return next(
            (
                index
                for index in range(len(segment.levels))
                for edge in self._builder.readers(segment, index)
                if edge.dest in dests
            ),
            None,
        )

    def _after_crash(self, segment: Segment, title: str, reason: str) -> segments.Event:
        """Decide what runs again: the segment alone, or also those whose rows are lost."""
        needed = {writer for writers in segment.reads.values() for writer in writers} | {
            writer.id
            for writer in self._plan.segments
            if any(
                dest in writer.writes and dest not in self._gathered for dest in segment.side_inputs
            )
        }
        lost = frozenset(
            writer
            for writer in needed
            if (rows := self._outputs.rows_of(writer)) and not self._is_complete(writer, rows)
        )
        if lost:
            _LOGGER.warning(
                "%s: rows of %d earlier Spark job(s) were lost with an executor, and are computed "
                "again: %s",
                *(title, len(lost), reason),
            )
            return segments.Lost(segment.id, lost, reason)
        _LOGGER.warning("%s runs again: %s", title, reason)
        return segments.Crashed(segment.id, reason)

    def _is_complete(self, writer: SegmentId, rows: OutputRows) -> bool:
        """Whether the materialised output of a segment is still there."""
        try:
            with self._settings.job_scope(f"Verify materialised output of segment {writer}"):
                return rows.is_complete()
        except Exception as error:
            self._settings.check_cancelled()
            if not machines_were_lost(error):
                raise SparkJobError(f"segment {writer}", reason_of(error)) from error
            return False

    def _source(self, segment: Segment) -> tuple[OutputRows | None, Mapping[DestinationId, bytes]]:
        """Return the rows that a segment reads, and the elements that its tasks get in the program.

        The latter save Spark a plan of their own, but only where no other rows are read.
        """
        parts = self._outputs.for_reader(segment.reads)
        fed = dict.fromkeys(segment.impulses, b"") | self._settings.tables.results_for(segment)
        if fed and not (parts or segment.tables or segment.levels[0].has_exchange):
            return OutputRows(one_row(self._settings.spark), {}), fed
        if fed:
            parts.append(fed_rows(self._settings.spark, fed))
        rows = OutputRows.union(parts) if parts else None
        return self._settings.tables.source(segment, rows), {}

    def _partitions(self, segment: Segment) -> int:
        settings = self._settings
        writers = {writer for writers in segment.reads.values() for writer in writers}
        least = settings.least_partitions
        if self._builder.keeps_partitions(segment):
            least = max(least, self._outputs.tasks_of(writers) + bool(segment.impulses))
        if not settings.counts_bytes:
            return least
        size_bytes = self._outputs.bytes_of(writers)
        return derive_partitions(least, size_bytes, settings.most_partitions)

    def _gather_side_inputs(self, segment: Segment) -> None:
        wanted = [dest for dest in segment.side_inputs if dest not in self._gathered]
        if not wanted:
            return
        parts = [
            rows
            for writer in self._plan.segments
            if not writer.writes.keys().isdisjoint(wanted)
            and (rows := self._outputs.rows_of(writer.id)) is not None
        ]
        gathered = OutputRows.union(parts) if parts else None
        edges = [self._builder.edges[dest] for dest in wanted]
        names = ", ".join(dict.fromkeys(edge.name for edge in edges))
        with self._settings.job_scope(f"side input of {names}"):
            settings = GatherSettings(
                job_id=self._settings.job_id,
                partitions=self._settings.least_partitions,
                folder=self._settings.folder,
                share=self._settings.share,
                materialiser=self._settings.materialiser,
            )
            self._gathered.update(gather(gathered, edges, settings))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

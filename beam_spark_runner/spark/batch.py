"""Running a plan: one Spark job after another, each accepted before the next begins."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core.errors import (
    RunnerError,
    SparkJobError,
)
from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.plan.model import Level, Plan, Segment
from beam_spark_runner.portable.monitoring import merge, residual_gauges
from beam_spark_runner.scheduling import rounds, segments
from beam_spark_runner.scheduling.attempts import (
    Accepted,
    Ambiguous,
    Attempts,
    Failed,
    Rejected,
    Report,
    Verdict,
    judge,
)
from beam_spark_runner.scheduling.partitions import derive_partitions
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.exchange import exchange
from beam_spark_runner.spark.failures import machines_were_lost, reason_of, stages_behind
from beam_spark_runner.spark.kept import Kept, KeptRows
from beam_spark_runner.spark.marks import spread_marks
from beam_spark_runner.spark.program import SideInputRows
from beam_spark_runner.spark.programs import ProgramBuilder
from beam_spark_runner.spark.reports import collect_reports, error_of
from beam_spark_runner.spark.setting import Setting, Tally
from beam_spark_runner.spark.side_inputs import AmbiguousRowsError, Surroundings, gather
from beam_spark_runner.spark.task import level_function
from beam_spark_runner.state.residuals import MAX_US

_LOGGER = logging.getLogger(__name__)


def run_plan(plan: Plan, setting: Setting, tally: Tally) -> None:
    """Run all segments.

    Raises:
        BundleFailedError: user code failed, as often as Spark retries tasks.
        SparkJobError: Spark gave a segment up, or it never ran on one version of its data.
    """
    run = _PlanRun(plan, setting, tally)
    by_id = {segment.id: segment for segment in plan.segments}
    order = segments.SegmentOrder(_reads(plan))
    action = order.start()
    while not isinstance(action, segments.Finish):
        setting.check_cancelled()
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
    def __init__(self, plan: Plan, setting: Setting, tally: Tally) -> None:
        self._plan = plan
        self._setting = setting
        self._tally = tally
        self._builder = ProgramBuilder(plan, setting.job_id, setting.limits, setting.folder)
        self._kept = KeptRows()
        self._gathered: dict[DestinationId, SideInputRows] = {}
        self._runs = 0
        self._job = range(0)  # levels of the Spark job that runs

    def forget(self, stale: Iterable[SegmentId]) -> None:
        """Drop what segments have made, and the counts of making it."""
        for segment in self._plan.segments:
            if segment.id in stale:
                self._kept.forget(segment.id)
                self._tally.accepted.pop(segment.id, None)
                for dest in segment.writes:
                    self._gathered.pop(dest, None)

    def run_segment(self, segment: Segment) -> segments.Event:
        """Run one segment once."""
        source = self._source(segment)
        if source is None:
            # Nothing flows: it reads only what is empty for certain.
            return segments.Ran(segment.id)
        title = segment_title(self._plan, segment)
        try:
            self._gather_side_inputs(segment)
            with self._setting.job_scope(title):
                verdict = self._run_rounds(segment, source)
        except RunnerError:
            raise
        except AmbiguousRowsError as error:
            verdict = error.verdict
        except Exception as error:
            self._setting.check_cancelled()
            if not machines_were_lost(error):
                raise SparkJobError(self._blamed(segment, error), reason_of(error)) from error
            return self._after_crash(segment, title, reason_of(error))
        match verdict:
            case Accepted():
                return segments.Ran(segment.id)
            case Failed(failure):
                raise error_of(failure)
            case Ambiguous(runs, why) if writers := self._kept.writers_of(runs):
                _LOGGER.warning(
                    "%s: rows of %d earlier Spark job(s) are made again: %s",
                    *(title, len(writers), why),
                )
                return segments.Lost(segment.id, writers, why)
            case Rejected(why) | Ambiguous(reason=why):
                _LOGGER.warning("%s runs again: %s", title, why)
                return segments.Rejected(segment.id, why)

    def _run_rounds(self, segment: Segment, source: Kept) -> Verdict:
        """Run the Spark jobs that a segment takes: one, unless splittable DoFns leave something."""
        budget_s = None
        if self._builder.has_rounds(segment) and (
            self._partitions(segment) > 1 or self._builder.finalizes(segment)
        ):
            budget_s = self._setting.round_budget_s
        machine = rounds.Rounds(len(segment.levels), budget_s or 0.0)
        action = machine.start()
        made: list[Kept] = []  # by each job
        last: list[Report] = []
        all_infos: list[bytes] = []
        emitted_bytes = 0
        while not isinstance(action, rounds.Finish):
            self._setting.check_cancelled()
            match action:
                case rounds.RunLevels(first=first):
                    job = range(first, len(segment.levels))
                    if made:
                        hosted = [
                            edge.dest for i in job for edge in self._builder.readers(segment, i)
                        ]
                        source = Kept.union(made).rows_for(hosted)
                case rounds.RunRound(level=level, number=number):
                    job = range(level, level + 1)
                    count = sum(each.count for report in last for each in report.residuals.values())
                    _LOGGER.info("round %d: %d restriction(s) are left", number, count)
                    source = made[-1].rows_for(self._left(last))
            self._job = job
            self._runs += 1
            self._setting.observer.began(self._runs)
            frame, partitions = self._frame(segment, source, job, budget_s and action.budget_s)
            if segment.writes or budget_s is not None:
                name = f"segment-{segment.id}-run-{self._runs}"
                frame = self._setting.materialiser.materialise(frame, name)
            last = collect_reports(frame)
            infos = [info for report in last for info in report.monitoring_infos]
            if made or self._left(last):
                infos += self._gauges(segment, last)
            self._tally.attempted = merge([*self._tally.attempted, *infos])
            self._setting.observer.reported(last)
            verdict = judge(last, partitions, first=job[0], kept=source.made_by)
            if not isinstance(verdict, Accepted):
                return verdict
            self._setting.observer.accepted(last)
            made_by = Attempts.of(each.attempt for each in last if each.level == job[-1])
            made.append(Kept(frame, {self._runs: made_by}))
            all_infos += infos
            emitted_bytes += sum(each.emitted_bytes for each in last if each.level == job[-1])
            action = machine.on(rounds.Ran(self._level_of(segment, self._left(last))))
        self._tally.accepted[segment.id] = merge(all_infos)
        if segment.writes:
            kept = Kept.union(made).rows_for(segment.writes) if len(made) > 1 else made[0]
            self._kept.keep(segment.id, kept, emitted_bytes)
        return Accepted()

    def _gauges(self, segment: Segment, reports: Sequence[Report]) -> list[bytes]:
        """Say what the splittable DoFns of a segment have left for the next round."""
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

    def _blamed(self, segment: Segment, error: Exception) -> str:
        """Name the steps that shared the Spark stage, or those of the segment."""
        behind = stages_behind(self._setting.spark, self._setting.job_id, error)
        if behind is None or behind >= len(self._job):
            return segment_title(self._plan, segment)
        return _title(self._plan, [segment.levels[self._job[-1 - behind]]])

    def _after_crash(self, segment: Segment, title: str, reason: str) -> segments.Event:
        """Find out whether rows that the segment reads are gone; it may be it alone that failed."""
        needed = {writer for writers in segment.reads.values() for writer in writers} | {
            writer.id
            for writer in self._plan.segments
            if any(
                dest in writer.writes and dest not in self._gathered for dest in segment.side_inputs
            )
        }
        lost = frozenset(
            writer for writer in needed if writer in self._kept and not self._is_whole(writer)
        )
        if lost:
            _LOGGER.warning(
                "%s: rows of %d earlier Spark job(s) went with an executor, and are made again: %s",
                *(title, len(lost), reason),
            )
            return segments.Lost(segment.id, lost, reason)
        _LOGGER.warning("%s runs again: %s", title, reason)
        return segments.Crashed(segment.id, reason)

    def _is_whole(self, writer: SegmentId) -> bool:
        """Whether what a segment has kept is still there."""
        try:
            with self._setting.job_scope(f"is what segment {writer} wrote still there?"):
                return self._kept[writer].is_whole()
        except Exception as error:
            self._setting.check_cancelled()
            if not machines_were_lost(error):
                raise SparkJobError(f"segment {writer}", reason_of(error)) from error
            return False

    def _source(self, segment: Segment) -> Kept | None:
        parts = self._kept.for_reader(segment.reads)
        if segment.impulses:
            parts.append(Kept(_impulses(self._setting.spark, segment.impulses), {}))
        return Kept.union(parts) if parts else None

    def _frame(
        self, segment: Segment, source: Kept, job: range, round_budget_s: float | None
    ) -> tuple[DataFrame, Mapping[int, int]]:
        """Chain the levels. Also returns the number of tasks of each level behind an exchange."""
        frame, partitions = source.frame, self._partitions(segment)
        counts: dict[int, int] = {}
        for index in job:
            program = self._builder.level(
                segment,
                index,
                partitions,
                self._gathered,
                job=job,
                round_budget_s=round_budget_s,
                run=self._runs,
            )
            if segment.levels[index].has_exchange:
                if index == job[0] and source.made_by:
                    frame = spread_marks(frame, partitions)
                frame = exchange(
                    frame,
                    partitions,
                    self._builder.readers(segment, index),
                    control_first=program.may_pass_on,
                )
                counts[index] = partitions
            frame = frame.mapInArrow(level_function(program), rows.SPARK_SCHEMA)
        return frame, counts

    def _partitions(self, segment: Segment) -> int:
        least = self._setting.least_partitions
        if not self._setting.counts_bytes:
            return least
        writers = {writer for writers in segment.reads.values() for writer in writers}
        return derive_partitions(least, self._kept.bytes_of(writers))

    def _gather_side_inputs(self, segment: Segment) -> None:
        wanted = [dest for dest in segment.side_inputs if dest not in self._gathered]
        if not wanted:
            return
        parts = [
            self._kept[writer.id]
            for writer in self._plan.segments
            if writer.id in self._kept and not writer.writes.keys().isdisjoint(wanted)
        ]
        kept = Kept.union(parts) if parts else None
        edges = [self._builder.edges[dest] for dest in wanted]
        names = ", ".join(dict.fromkeys(edge.name for edge in edges))
        with self._setting.job_scope(f"side input of {names}"):
            where = Surroundings(
                job_id=self._setting.job_id,
                partitions=self._setting.least_partitions,
                folder=self._setting.folder,
                share=self._setting.share,
                materialiser=self._setting.materialiser,
            )
            self._gathered.update(gather(kept, edges, where))


def segment_title(plan: Plan, segment: Segment) -> str:
    """Name a segment by the steps it runs, for Spark's UI and for messages."""
    return _title(plan, segment.levels)


def _title(plan: Plan, levels: Sequence[Level]) -> str:
    names = [plan.stages[stage].name for level in levels for stage in level.stages]
    text = " → ".join(names)
    return text if len(text) <= 200 else text[:199] + "…"


def _impulses(spark: SparkSession, dests: Sequence[DestinationId]) -> DataFrame:
    count = len(dests)
    # SQL, not ``functions``: those work by a global switch on classic Spark or on Connect, and a
    # process may have sessions of both.
    ids = ", ".join(str(int(dest)) for dest in dests)
    return spark.range(0, count, 1, 1).selectExpr(
        f"element_at(array({ids}), cast(id + 1 as int)) as dest",
        "cast(0 as bigint) as route",
        "cast(0 as bigint) as `order`",
        "cast(null as binary) as key",
        "cast('' as binary) as value",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

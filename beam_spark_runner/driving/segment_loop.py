"""Runs a bounded plan: one job after another, each accepted before the next begins."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping

from beam_spark_runner.core.errors import LostRowsError, SparkJobError
from beam_spark_runner.core.ids import SegmentId, TransformId
from beam_spark_runner.core.rendering import whole_message_of
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.outputs import Outputs
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_job import SegmentJobs, segment_title
from beam_spark_runner.driving.segment_run import SegmentRun, SegmentRuns, Source
from beam_spark_runner.driving.segment_store import (
    CommittedByOtherError,
    ForgetfulStore,
    SegmentStore,
)
from beam_spark_runner.driving.tables import Begun, results_for
from beam_spark_runner.driving.triage import Attempt, attempt, can_be_read
from beam_spark_runner.engine.rows.driver_rows import first_rows
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.recovery.begun_writes import BegunWrite, Outcome
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import Accepted, Ambiguous, Consumed, Verdict
from beam_spark_runner.scheduling.partition_counts import derive_partitions
from beam_spark_runner.scheduling.segment_output import SegmentOutput

_ONE_TASK: tuple[Consumed, ...] = ({},)
"""What the only task reads of rows that the driver has: those of no other task."""


def run_plan(
    plan: Plan,
    settings: RunSettings,
    cluster: Cluster,
    tally: RunMetrics,
    clock: Clock,
    store: SegmentStore | None = None,
) -> None:
    """Run all segments.

    Args:
        plan: a bounded plan.
        settings: how it runs.
        cluster: on which it runs.
        tally: gets its metrics.
        clock: of this machine.
        store: remembers what has run. None: nothing outlives this run.

    Raises:
        BundleFailedError: user code failed in all attempts at a task.
        SparkJobError: the cluster failed a segment, or it has run too often without being accepted.
    """
    store = ForgetfulStore() if store is None else store
    while True:
        try:
            return _PlanRun(plan, settings, cluster, tally, clock, store).run()
        except CommittedByOtherError:
            tally.accepted.clear()


def reads_of(plan: Plan) -> Mapping[SegmentId, frozenset[SegmentId]]:
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
    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        store: SegmentStore,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._cluster = cluster
        self._tally = tally
        self._builder = ProgramBuilder(plan, settings.job_id, settings.limits)
        self._outputs = Outputs()
        self._store = store
        restored = store.restored()
        self._done = restored.done.keys()
        self._gathered = dict(restored.gathered)
        tally.accepted.update(restored.done)
        for each in plan.segments:
            if each.table_write is not None and each.id in restored.written:
                cluster.tables.results[each.table_write] = restored.written[each.id]
        for writer, stored in restored.outputs.items():
            self._outputs.add(writer, stored.output, stored.rows)
        self._jobs = SegmentJobs(plan, settings, cluster, self._builder, store)
        self._runs = SegmentRuns(
            plan=plan,
            settings=settings,
            cluster=cluster,
            builder=self._builder,
            tally=tally,
            jobs=self._jobs,
            clock=clock,
            store=store,
        )

    def run(self) -> None:
        """Run the segments that have not run; see ``run_plan``."""
        by_id = {segment.id: segment for segment in self._plan.segments}
        order = segments.SegmentOrder(reads_of(self._plan), self._done, self._gone)
        action = order.start()
        while not isinstance(action, segments.FinishPlan):
            self._settings.check_cancelled()
            segment = by_id[action.segment]
            if isinstance(action, segments.GiveUp):
                raise SparkJobError(segment_title(self._plan, segment), action.reason)
            outlast = self._store.outlast
            outlast(functools.partial(self._forget, action.forget))
            action = order.on(outlast(functools.partial(self._run_segment, segment)))

    def _forget(self, stale: Iterable[SegmentId]) -> None:
        """Drop the outputs of segments, and their metrics."""
        stale = frozenset(stale)
        if not stale:
            return
        self._store.forget(stale)
        for segment in self._plan.segments:
            if segment.id in stale:
                self._outputs.forget(segment.id)
                self._tally.accepted.pop(segment.id, None)
                for dest in segment.writes:
                    self._gathered.pop(dest, None)

    def _gone(self, id_: SegmentId) -> frozenset[SegmentId]:
        """Return the segments whose output a segment reads, and which was released."""
        segment = next(each for each in self._plan.segments if each.id == id_)
        if segment.table_write in self._cluster.tables.results:
            return frozenset()  # it is not written again
        needed = {writer for writers in segment.reads.values() for writer in writers}
        needed |= {
            writer.id
            for writer in self._plan.segments
            for dest in segment.side_inputs
            if dest in writer.writes and dest not in self._gathered
        }
        return self._store.released() & needed

    def _run_segment(self, segment: Segment) -> segments.Event:
        """Run one segment once."""
        self._settings.on_segment(segment.id)
        if segment.table_write is not None:
            return self._write_table(segment, segment.table_write)
        source = self._source(segment)
        if source is None:
            return segments.RanSegment(segment.id)
        title = segment_title(self._plan, segment)
        self._jobs.forget_last()

        def run() -> Verdict:
            self._gather_side_inputs(segment)
            with self._cluster.scope(title), self._cluster.reading(segment):
                return self._run(segment, source)

        return attempt(
            Attempt(
                segment=segment.id,
                cluster=self._cluster,
                title=title,
                run=run,
                check_cancelled=self._settings.check_cancelled,
                on_trouble=self._settings.on_trouble,
                blamed_for=lambda error: self._jobs.steps_blamed_for(segment, error),
                writers_in=self._outputs.writers_of,
                writers_lost=lambda: self._writers_lost(segment),
            )
        )

    def _write_table(self, segment: Segment, step: TransformId) -> segments.Event:
        """Write what other segments have materialised."""
        tables, store = self._cluster.tables, self._store.writes
        if step in tables.results:  # its rows were computed again for others, or it only ends
            store.end(segment.id, tables.results[step])
            return segments.RanSegment(segment.id)
        write = tables.to_write(step)
        known = store.begun(segment.id)
        if known is not None:
            write = write.continued(known)
        earlier = None if step in tables.begun else known
        title = segment_title(self._plan, segment)
        parts = self._outputs.for_reader(segment.reads)
        (dest,) = segment.reads

        def begin(make: Callable[[int], BegunWrite]) -> Begun:
            is_again = step in tables.begun or earlier is not None
            begun = store.begin(segment.id, lambda: make(store.start))
            tables.begun.add(step)
            store.check_fence()
            return Begun(is_again, begun, store.start)

        def result() -> bytes:
            if earlier is None and write.is_skipped:
                return write.skip()
            if earlier is not None and write.outcome(earlier) == Outcome.IS_WRITTEN:
                return write.written(earlier)
            return write.run(OutputRows.union(parts) if parts else None, dest, begin)

        def run() -> Verdict:
            with self._cluster.scope(title):
                tables.results[step] = result()
            store.end(segment.id, tables.results[step])
            return Accepted()

        return attempt(
            Attempt(
                segment=segment.id,
                cluster=self._cluster,
                title=title,
                run=run,
                check_cancelled=self._settings.check_cancelled,
                on_trouble=self._settings.on_trouble,
                blamed_for=lambda error: write.step,
                reason_for=write.reason_for,
                may_run_again=lambda: step not in tables.begun or write.may_run_again(),
                writers_in=self._outputs.writers_of,
                writers_lost=lambda: self._writers_lost(segment),
            )
        )

    def _run(self, segment: Segment, source: Source) -> Verdict:
        run = SegmentRun(
            self._runs,
            segment,
            source,
            self._gathered,
            self._partitions(segment),
            self._store.jobs_of(segment.id),
        )
        try:
            verdict = run.run()
        except Exception as error:
            lost = LostRowsError.found_in(whole_message_of(error))
            if isinstance(error, LostRowsError):
                lost = error
            self._forget_own(segment, run, () if lost is None else (lost.run,))
            raise
        if isinstance(verdict, Ambiguous):
            self._forget_own(segment, run, verdict.runs)
        if isinstance(verdict, Accepted):
            self._tally.accept(segment.id, run.infos)
            if segment.writes:
                self._outputs.add(
                    segment.id,
                    SegmentOutput(
                        parts=tuple(each.part for each in run.made),
                        size_bytes=sum(each.emitted_bytes for each in run.made),
                    ),
                    OutputRows.union([each.rows for each in run.made]),
                )
        return verdict

    def _forget_own(self, segment: Segment, run: SegmentRun, lost: Collection[int]) -> None:
        """Forget the jobs of a segment that has not ended, if rows between them are lost.

        Args:
            segment: the segment.
            run: its run.
            lost: the numbers of the jobs whose rows are lost.
        """
        if not run.numbers.isdisjoint(lost):
            self._store.forget([segment.id])

    def _writers_lost(self, segment: Segment) -> frozenset[SegmentId]:
        """Return the segments whose rows a segment reads, and which were lost with an executor."""
        needed = {writer for writers in segment.reads.values() for writer in writers} | {
            writer.id
            for writer in self._plan.segments
            if any(
                dest in writer.writes and dest not in self._gathered for dest in segment.side_inputs
            )
        }
        return frozenset(
            writer
            for writer in needed
            if (rows := self._outputs.rows_of(writer)) and not self._is_complete(writer, rows)
        )

    def _is_complete(self, writer: SegmentId, rows: OutputRows) -> bool:
        """Whether the materialised output of a segment is still there."""
        with self._cluster.scope(f"Verify materialised output of segment {writer}"):
            return can_be_read(
                rows.is_complete,
                self._cluster,
                self._settings.check_cancelled,
                lambda error: f"segment {writer}",
            )

    def _source(self, segment: Segment) -> Source | None:
        """Return what a segment reads; None: no segment upstream has any rows for it."""
        tables = self._cluster.tables
        elements = {**dict.fromkeys(segment.impulses, b""), **results_for(tables, segment)}
        fed = first_rows(elements)
        if self._may_begin_in_one_task(segment):
            returned = self._outputs.returned_for(segment.reads)
            if returned is not None and (fed or self._outputs.has_rows_for(segment.reads)):
                return Source(self._no_rows(), [*fed, *returned], in_one_task=True)
        parts = self._outputs.for_reader(segment.reads)
        # In the program, they need no separate job, but only where no other rows are read.
        if fed and not (parts or segment.tables or segment.levels[0].has_exchange):
            return Source(self._no_rows(), fed)
        if fed:
            parts.append(OutputRows(self._cluster.elements(elements), {}, sources=_ONE_TASK))
        rows = tables.source(segment, OutputRows.union(parts) if parts else None)
        return None if rows is None else Source(rows)

    def _no_rows(self) -> OutputRows:
        return OutputRows(self._cluster.no_rows(), {}, sources=_ONE_TASK)

    def _may_begin_in_one_task(self, segment: Segment) -> bool:
        settings = self._settings
        return (
            settings.single_task_budget_s > 0
            and not segment.tables
            and self._outputs.has_room_in_driver()
            # Without rounds, it would process all restrictions.
            and (settings.round_budget_s is not None or not self._builder.has_rounds(segment))
            and self._builder.may_begin_in_one_task(segment)
        )

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
        with self._cluster.scope(f"side input of {names}"):
            new = self._cluster.gather(
                gathered, edges, self._settings.least_partitions, self._store.side_inputs
            )
            self._store.gather(new)
            self._gathered.update(new)

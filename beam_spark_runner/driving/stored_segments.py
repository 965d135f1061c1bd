"""Commits what a bounded plan has run, so that a later start continues from there."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.driving.clock import Background, Clock, Pending
from beam_spark_runner.driving.cluster import Cluster, JobResult
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.run_context import log_trouble
from beam_spark_runner.driving.segment_loop import reads_of
from beam_spark_runner.driving.segment_store import (
    CommittedByOtherError,
    JobInput,
    JobPlace,
    Restored,
    RestoredJobs,
    RestoredOutput,
    WriteStore,
)
from beam_spark_runner.driving.stored_writes import StoredWrites
from beam_spark_runner.engine.program import OutputPlace, SideInputRows
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.shared_file import SharedFile, file_in, name_of
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.observing.troubles import TroubleKind
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.recovery.batch_manifest import (
    BatchManifest,
    GatheredSideInput,
    RunningSegment,
    StoredPart,
    work_folder,
)
from beam_spark_runner.recovery.batch_start import BatchStart, WorkFolders
from beam_spark_runner.recovery.finishes import (
    Finish,
    decode_record,
    finished_partitions,
    keeps_tasks,
    rows_name,
    tasks_before,
)
from beam_spark_runner.scheduling.attempts import Accepted, Attempts, Consumed, Report
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.scheduling.segment_output import OutputPart, SegmentOutput
from beam_spark_runner.storage.folder import Folder, Settings

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class JobFolder(WorkFolders, Protocol):
    """The folder of a job, with a subfolder for each commit."""

    @property
    def settings(self) -> Settings:
        """Settings of the client of tasks; see ``UrlFolder``."""
        ...

    def place(self, folder: str) -> str:
        """Return the path or URL of a subfolder."""
        ...

    def make(self, folder: str) -> Folder:
        """Make a subfolder, if it is missing, and return it."""
        ...

    def read(self, folder: str, names: Sequence[str]) -> Sequence[bytes]:
        """Return the contents of files of a subfolder. Those of missing ones are empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What ``StoredSegments`` needs of the job that runs.

    Attributes:
        clock: of this machine.
        wait: sleeps for so many seconds, or raises if the job is to end.
        background: removes files that a commit has superseded.
        on_continue: see ``RunSettings``.
        slots: returns how many tasks run at a time.
        on_commit: is called at each commit.
        on_trouble: see ``RunSettings``.
    """

    clock: Clock
    wait: Callable[[float], None]
    background: Background
    on_continue: Callable[[str], None]
    slots: Callable[[], int]
    on_commit: Callable[[], None]
    on_trouble: Callable[[TroubleKind, str], None] = log_trouble


class StoredSegments:
    """See ``SegmentStore``: everything that is accepted is committed to the folder of the job.

    Args:
        plan: a bounded plan, each of whose levels is a segment.
        cluster: on which it runs.
        start: the start of this driver.
        folder: the folder of the job.
        surroundings: see there.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: Cluster,
        start: BatchStart,
        folder: JobFolder,
        surroundings: Surroundings,
    ) -> None:
        self._plan, self._cluster = plan, cluster
        self._reads = reads_of(plan)
        self._start, self._folder = start, folder
        self._surroundings = surroundings
        self.writes: WriteStore = StoredWrites(start, self._commit)
        self._sweep: Pending | None = None
        self._removable: set[int] = set(range(1, start.manifest.commit + 1))
        if start.manifest.commit:
            done, count = len(start.manifest.done), len(plan.segments)
            _LOGGER.info("continuing after %d of %d Spark jobs", done, count)
            surroundings.on_continue(f"{done} of {count} Spark jobs")

    @property
    def side_inputs(self) -> Folder | None:
        """See ``SegmentStore``."""
        return self._folder.make(work_folder(self.next_run()))

    def restored(self) -> Restored:
        """See ``SegmentStore``."""
        last = self._start.manifest
        return Restored(
            done={SegmentId(segment): infos for segment, infos in last.done.items()},
            outputs={
                SegmentId(segment): self._restored_output(parts)
                for segment, parts in last.outputs.items()
            },
            gathered={
                DestinationId(dest): self._side_input(gathered)
                for dest, gathered in last.side_inputs.items()
            },
            written={SegmentId(segment): result for segment, result in last.written.items()},
        )

    def jobs_of(self, segment: SegmentId) -> RestoredJobs | None:
        """See ``SegmentStore``."""
        running = self._start.manifest.running
        if running is None or running.segment != segment:
            return None
        results = [
            JobResult(
                rows=self.rows_of(part.run, part.attempts),
                part=_output_part(part),
                reports=(),
                residuals={DestinationId(dest): count for dest, count in part.residuals.items()},
                verdict=Accepted(),
                emitted_bytes=part.size_bytes,
            )
            for part in running.parts
        ]
        return RestoredJobs(made=results, infos=running.metrics)

    def released(self) -> frozenset[SegmentId]:
        """See ``SegmentStore``."""
        last = self._start.manifest
        writers = {int(each.id) for each in self._plan.segments if each.writes}
        return frozenset(map(SegmentId, (writers & last.done.keys()) - last.outputs.keys()))

    def next_run(self) -> int:
        """Return the number of the commit that would accept the next Spark job.

        It is the same in all starts, so that tasks that have finished count in any of them.
        """
        return self._start.manifest.commit + 1

    def place_for(self, run: int, source: JobInput, *, has_rows: bool) -> JobPlace:
        """See ``SegmentStore``. The folder is made here, so that no task makes it again."""
        name = work_folder(run)
        self._folder.make(name)
        tasks, finished = self._kept(name, source)
        if finished:
            _LOGGER.info("%d of %d partitions have finished already", len(finished), tasks)
        place = OutputPlace(
            folder=self._folder.place(name),
            run=run,
            tasks=tasks,
            has_rows=has_rows,
            finished=frozenset(report.partition for report in finished),
            store=self._folder.settings,
        )
        return JobPlace(place=place, finished=finished)

    def rows_of(self, run: int, attempts: Sequence[int]) -> OutputRows:
        """See ``SegmentStore``."""
        folder = self._folder.place(work_folder(run))
        files = [
            OutputFile(run, folder, rows_name(partition, attempt))
            for partition, attempt in enumerate(attempts)
        ]
        return OutputRows(
            self._cluster.stored_rows(files, self._folder.settings),
            {run: Attempts.of(attempts)},
            sources=tuple({run: Attempts.of([attempt])} for attempt in attempts),
        )

    def accept(
        self,
        segment: Segment,
        made: Sequence[JobResult],
        metrics: Callable[[], tuple[bytes, ...]],
        *,
        is_last: bool,
    ) -> None:
        """See ``SegmentStore``."""
        last = self._start.manifest
        parts = tuple(map(_stored_part, made))
        number = int(segment.id)
        if not is_last:
            running = RunningSegment(segment=number, parts=parts, metrics=metrics())
            self._commit(replace(last, running=running))
            return
        outputs = dict(last.outputs)
        if segment.writes:
            outputs[number] = parts
        self._commit(
            replace(last, running=None, done={**last.done, number: metrics()}, outputs=outputs)
        )

    def gather(self, gathered: Mapping[DestinationId, SideInputRows]) -> None:
        """See ``SegmentStore``."""
        last, run = self._start.manifest, self.next_run()
        names = [name_of(file) for rows in gathered.values() for file in rows.files]
        if names:  # they are durable before the manifest names them
            self._folder.make(work_folder(run)).create(f"gathered-{names[0]}", b"", after=names)
        new = {
            int(dest): GatheredSideInput(
                id=rows.id,
                code=rows.code,
                inline=rows.inline,
                run=run,
                files=tuple(map(name_of, rows.files)),
            )
            for dest, rows in gathered.items()
        }
        self._commit(replace(last, side_inputs={**last.side_inputs, **new}))

    def forget(self, stale: Iterable[SegmentId]) -> None:
        """See ``SegmentStore``. The number changes, so that what has read lost rows is not used."""
        last, numbers = self._start.manifest, frozenset(map(int, stale))
        dests = {
            int(dest)
            for segment in self._plan.segments
            if int(segment.id) in numbers
            for dest in segment.writes
        }
        self._commit(
            replace(
                last,
                running=None,
                done={number: each for number, each in last.done.items() if number not in numbers},
                outputs={
                    number: each for number, each in last.outputs.items() if number not in numbers
                },
                side_inputs={
                    dest: each for dest, each in last.side_inputs.items() if dest not in dests
                },
            )
        )

    def outlast(self, work: Callable[[], _Result]) -> _Result:
        """See ``SegmentStore``."""

        def warn(text: str) -> None:
            self._surroundings.on_trouble(TroubleKind.STORAGE, text)

        return retry_while_unavailable(work, self._now_s, warn, self._surroundings.wait)

    def close(self) -> None:
        """Wait until superseded files are removed."""
        sweep, self._sweep = self._sweep, None
        if sweep is not None:
            try:
                self._removable -= sweep.result()
            except CheckpointStorageError as error:
                _LOGGER.warning("superseded files remain until the next commit: %s", error)

    def _commit(self, mine: BatchManifest) -> None:
        mine = replace(self._as_needed(mine), commit=mine.commit + 1)
        committed = self._start.commit(mine)
        self._surroundings.on_commit()
        self._removable.add(mine.commit)
        self.close()
        runs = frozenset(self._removable)
        self._sweep = self._surroundings.background.submit(lambda: self._start.sweep(runs))
        if committed != mine:
            raise CommittedByOtherError

    def _as_needed(self, manifest: BatchManifest) -> BatchManifest:
        """Drop what no segment reads any more."""
        waiting = [each for each in self._plan.segments if int(each.id) not in manifest.done]
        writers = {int(writer) for segment in waiting for writer in self._reads[segment.id]}
        dests = {int(dest) for segment in waiting for dest in segment.side_inputs}
        return replace(
            manifest,
            outputs={n: parts for n, parts in manifest.outputs.items() if n in writers},
            side_inputs={n: each for n, each in manifest.side_inputs.items() if n in dests},
        )

    def _kept(self, folder: str, source: JobInput) -> tuple[int, list[Report]]:
        """Return the number of tasks of a Spark job, and the reports of those that are finished."""
        found = finished_partitions(self._folder.names(folder))
        wanted = source.partitions
        if wanted is None:
            tasks = 0 if source.sources is None else len(source.sources)
            return tasks, self._finished(folder, found.get(tasks, {}), source)
        before = tasks_before(found)
        if before is not None and before != wanted:
            kept = self._finished(folder, found[before], source)
            if keeps_tasks(before, len(kept), min(wanted, self._surroundings.slots())):
                return before, kept
        return wanted, self._finished(folder, found.get(wanted, {}), source)

    def _finished(
        self, folder: str, found: Mapping[int, Sequence[Finish]], source: JobInput
    ) -> list[Report]:
        """Return a report for each partition that is finished, and has read what was accepted."""
        finishes = [finish for each in found.values() for finish in each]
        records = self._folder.read(folder, [finish.record_name for finish in finishes])
        reports: dict[int, Report] = {}
        for finish, record in zip(finishes, records, strict=True):
            coded = decode_record(record)
            if coded is None or finish.partition in reports:
                continue
            (report,) = reports_of([coded])
            if report.attempt == finish.attempt and report.consumed == _read_by(
                finish.partition, source
            ):
                reports[finish.partition] = report
        return list(reports.values())

    def _restored_output(self, parts: Sequence[StoredPart]) -> RestoredOutput:
        rows = [self.rows_of(part.run, part.attempts) for part in parts]
        output = SegmentOutput(
            parts=tuple(map(_output_part, parts)),
            size_bytes=sum(part.size_bytes for part in parts),
        )
        return RestoredOutput(output=output, rows=OutputRows.union(rows) if rows else None)

    def _side_input(self, gathered: GatheredSideInput) -> SideInputRows:
        files: tuple[SharedFile, ...] = ()
        if gathered.files:
            folder = self._folder.make(work_folder(gathered.run))
            files = tuple(file_in(folder, name) for name in gathered.files)
        return SideInputRows(
            id=gathered.id, code=gathered.code, inline=gathered.inline, files=files
        )

    def _now_s(self) -> float:
        return self._surroundings.clock.monotonic_ns() / 1e9


def _read_by(partition: int, source: JobInput) -> Consumed:
    """Return the attempts whose rows a task reads, by run."""
    if source.partitions is not None:
        return source.made_by
    assert source.sources is not None
    return source.sources[partition]


def _stored_part(result: JobResult) -> StoredPart:
    return StoredPart(
        run=result.part.run,
        attempts=result.part.by_partition,
        size_bytes=result.emitted_bytes,
        residuals={int(dest): count for dest, count in result.residuals.items()},
    )


def _output_part(part: StoredPart) -> OutputPart:
    return OutputPart(part.run, Attempts.of(part.attempts), part.attempts)

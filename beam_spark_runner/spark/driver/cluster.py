"""Runs the tasks of a pipeline on Spark; see ``driving.cluster``."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.backchannel.offers import Offer, Offers
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.cluster import (
    EpochJob,
    EpochResult,
    JobResult,
    LevelsJob,
    LevelsResult,
    StoredInput,
)
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.engine.rows.reports import reports_of, without_reports
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding
from beam_spark_runner.engine.task.stored_output import OutputFile, OutputReading
from beam_spark_runner.graph.resources import merged
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver import spark_errors
from beam_spark_runner.spark.driver.epoch_jobs import Epochs
from beam_spark_runner.spark.driver.frame_rows import (
    DriverRows,
    FileRows,
    FrameRows,
    NoRows,
    frame_of,
    frame_of_elements,
    frame_of_rows,
)
from beam_spark_runner.spark.driver.gather import GatherSettings, gather
from beam_spark_runner.spark.driver.helping_job import HelpingJob
from beam_spark_runner.spark.driver.level_frames import level_frame
from beam_spark_runner.spark.driver.materialise import Materialiser
from beam_spark_runner.spark.driver.one_task import collect_values
from beam_spark_runner.spark.driver.plan_copies import PlanCopier, threads_are_pinned
from beam_spark_runner.spark.driver.profiled import ProfileFor, no_profile
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from beam_spark_runner.spark.worker.task_functions import (
    NEW_SHARDS,
    first_task_function,
    resharding_function,
)
from beam_spark_runner.storage.folder import Folder, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkClusterSettings:
    """Where the tasks of one pipeline run.

    Attributes:
        spark: the session of the pipeline.
        is_connect: whether it is a client of Spark Connect.
        job_id: the id of the job.
        job_name: the user's name of the pipeline.
        materialiser: stores the rows of segments.
        folder: a folder that driver and workers share. None: there is none.
        share: see ``SessionHandle.share``.
        scope: names Spark jobs, and lets them be cancelled with the pipeline.
        check_cancelled: raises if the pipeline is to end.
        cancel: cancels the Spark jobs of the pipeline that run now.
        offers: of tasks, to the driver.
        tables: that the plan reads and writes.
        is_anchored: each partition of a streaming pipeline stays on its host.
        in_one_task: one Spark task runs many epochs, while their rows are few.
        keeps_first_task: a Spark task that begins a segment stays for the next segments; see
            ``ResidentTask``.
        profile_for: returns Spark's resource profile of stages that need resources, or None.
    """

    spark: SparkSession
    is_connect: bool
    job_id: str
    materialiser: Materialiser
    folder: Folder | None
    share: Callable[[Path], SharedFile]
    scope: Callable[[str], AbstractContextManager[None]]
    check_cancelled: Callable[[], None]
    job_name: str | None = None
    cancel: Callable[[], None] = lambda: None
    offers: Offers = field(default_factory=Offers)
    tables: Tables = field(default_factory=NoTables)
    is_anchored: bool = False
    in_one_task: bool = False
    keeps_first_task: bool = False
    profile_for: ProfileFor = no_profile


class SparkCluster:
    """See ``Cluster``: each job is a Spark job."""

    def __init__(self, settings: SparkClusterSettings) -> None:
        self._settings = settings
        self._spark = settings.spark
        self._epochs: Epochs | None = None
        self._first_task: ResidentTask | None = None
        self.tables = settings.tables

    def scope(self, title: str) -> AbstractContextManager[None]:
        """See ``Cluster``."""
        return self._settings.scope(title)

    def run(self, job: LevelsJob) -> LevelsResult | None:
        """See ``Cluster``."""
        if job.single_task_budget_s is not None:
            return self._run_first_task(job, job.single_task_budget_s)
        if self._first_task is not None:
            self._first_task.release()
        frame = self._frame(job)
        if job.name is not None:
            frame = self._settings.materialiser.materialise(frame, job.name)
        return LevelsResult(FrameRows(frame), frames.collect_reports(frame))

    def reading(self, segment: Segment) -> AbstractContextManager[None]:
        """See ``Cluster``."""
        return self._settings.materialiser.with_users_settings(segment)

    def helping(self, run: int, help_with: Callable[[Offer], JobResult] | None) -> HelpingJob:
        """See ``Cluster``."""
        return HelpingJob(self._settings.offers, self._cancel, run, help_with)

    def no_rows(self) -> NoRows:
        """See ``Cluster``."""
        return NoRows(self._spark)

    def rows_of(self, coded: bytes) -> FrameRows:
        """See ``Cluster``."""
        return FrameRows(frame_of_rows(self._spark, coded))

    def stored_rows(self, files: Sequence[OutputFile], store: Settings) -> FileRows:
        """See ``Cluster``."""
        return FileRows(self._spark, OutputReading(files=tuple(files), store=store))

    def elements(self, elements: Mapping[DestinationId, bytes]) -> FrameRows:
        """See ``Cluster``."""
        return FrameRows(frame_of_elements(self._spark, elements))

    def gather(
        self,
        rows: OutputRows | None,
        edges: Sequence[Edge],
        partitions: int,
        folder: Folder | None = None,
    ) -> Mapping[DestinationId, SideInputRows]:
        """See ``Cluster``."""
        settings = GatherSettings(
            job_id=self._settings.job_id,
            partitions=partitions,
            folder=self._settings.folder if folder is None else folder,
            share=self._settings.share,
            materialiser=self._settings.materialiser,
        )
        return gather(rows, edges, settings)

    def run_epoch(self, job: EpochJob, source: Rows | StoredInput) -> EpochResult:
        """See ``Cluster``."""
        if self._epochs is None:
            self._epochs = self._new_epochs()
        return self._epochs.run(job, source)

    def reshard(self, resharding: Resharding) -> Sequence[NewShard]:
        """See ``Cluster``."""
        count = len(resharding.new_shards())
        numbers = self._spark.range(0, count, 1, count)
        new_shards = numbers.mapInArrow(resharding_function(resharding), NEW_SHARDS).collect()
        return [NewShard(*row) for row in new_shards]

    def machines_were_lost(self, error: BaseException) -> bool:
        """See ``Failures``."""
        return spark_errors.machines_were_lost(error)

    def reason_of(self, error: BaseException) -> str:
        """See ``Failures``."""
        return spark_errors.reason_of(error)

    def levels_after(self, error: BaseException) -> int | None:
        """See ``Failures``."""
        if self._epochs is not None and self._epochs.in_one_task:
            return None
        return spark_errors.stages_after(self._spark, self._settings.job_id, error)

    def close(self) -> None:
        """See ``Cluster``."""
        if self._epochs is not None:
            self._epochs.close()
        if self._first_task is not None:
            self._first_task.close()

    def _run_first_task(self, job: LevelsJob, budget_s: float) -> LevelsResult | None:
        """Run the only task of a job. Its rows come to the driver, which saves Spark jobs."""
        resources = merged(program.resources for program in job.programs)
        profile = self._settings.profile_for(resources)
        if profile is None and self._settings.keeps_first_task and threads_are_pinned():
            resident = self._first_task = self._first_task or self._new_first_task()
            coded = resident.begin_segment(job.programs, budget_s)
        else:
            function = first_task_function(job.programs, job.title, budget_s)
            coded = next(iter(collect_values(self._spark, function, job.title, profile)), None)
        if coded is None:
            return None
        reports: list[bytes] = []
        rows = list(without_reports(schema.decoded_batches(coded), reports))
        return LevelsResult(DriverRows(self._spark, rows), reports_of(reports), rows)

    def _cancel(self) -> None:
        """Cancel the Spark jobs of the pipeline that run now."""
        if self._first_task is not None:
            self._first_task.release()  # else, the next request would meet the cancelled job
        self._settings.cancel()

    def _new_first_task(self) -> ResidentTask:
        settings = self._settings
        of_job = f" of {settings.job_name}" if settings.job_name else ""
        title = f"steps with few elements{of_job}"
        return ResidentTask(self._spark, settings.scope, settings.check_cancelled, title)

    def _frame(self, job: LevelsJob) -> DataFrame:
        source, exchanges = job.source, job.exchanges_source
        frame, reading = None, None
        if isinstance(source, FileRows):
            source = source.for_level(job.programs[0], exchanges=exchanges)
            if not (exchanges or source.others):
                frame, reading = source.numbers, source.reading  # no Python stage only reads
        return level_frame(
            frame_of(source) if frame is None else frame,
            job.programs,
            exchanges_source=exchanges,
            has_marks=job.has_marks,
            reading=reading,
            profile_for=self._settings.profile_for,
        )

    def _new_epochs(self) -> Epochs:
        settings = self._settings
        copier = None
        if threads_are_pinned() and not settings.is_connect:
            copier = PlanCopier(self._spark, settings.job_id)
        return Epochs(
            self._spark,
            copier,
            settings.scope,
            settings.check_cancelled,
            is_anchored=settings.is_anchored,
            in_one_task=settings.in_one_task,
            profile_for=settings.profile_for,
            job_name=settings.job_name,
        )

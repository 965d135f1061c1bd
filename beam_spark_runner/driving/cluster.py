"""The port between a run's decisions and what executes them: Spark, or this process.

The modules of this folder decide which levels run, over which rows, and whether the output of the
tasks is accepted. A cluster runs the tasks, and brings their reports.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from beam_spark_runner.backchannel.offers import Offer
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.output_rows import ClusterRows, OutputRows
from beam_spark_runner.driving.tables import Tables
from beam_spark_runner.engine.program import Edge, LevelProgram, SideInputRows
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.scheduling.attempts import Attempts, Report, Verdict
from beam_spark_runner.scheduling.segment_output import OutputPart
from beam_spark_runner.storage.folder import Folder, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelsJob:
    """Consecutive levels of a segment that a cluster is to run.

    Attributes:
        title: the steps, for users.
        name: the name of its output, unique in the pipeline. None: it is not materialised.
        programs: the programs of the levels.
        source: the rows that the first level reads.
        has_marks: earlier jobs have made the rows of the source, so that marks are among them.
        spreads_source: the rows of the source are spread over the tasks of the first level, which
            would else be as few as those that made them.
        single_task_budget_s: set if one task runs the levels, as far as it comes; see
            ``engine.task.first_task``.
    """

    title: str
    name: str | None
    programs: Sequence[LevelProgram]
    source: ClusterRows
    has_marks: bool = False
    spreads_source: bool = False
    single_task_budget_s: float | None = None

    @property
    def exchanges_source(self) -> bool:
        """Whether an exchange brings the rows of the source to the tasks of the first level.

        If not, each of their partitions is for one task.
        """
        return self.spreads_source or self.programs[0].has_exchange


class LevelsResult(NamedTuple):
    """What the tasks of a ``LevelsJob`` have made.

    Attributes:
        rows: the rows of its last level, unless its tasks have stored them.
        reports: the reports of its tasks, including those of repeated attempts.
        returned: all rows, if they have come to the driver.
    """

    rows: ClusterRows
    reports: Sequence[Report]
    returned: Sequence[pa.RecordBatch] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job, as the run judges it.

    Attributes:
        rows: the rows of its last level.
        part: by which attempts they were materialised.
        reports: the reports of its tasks, including those of repeated attempts.
        residuals: by destination: how many restrictions are among the rows.
        verdict: whether the output is that of one attempt at each task.
        emitted_bytes: the size of the output, as Arrow holds it.
        stopped_at: the index of the level at which the only task has stopped; None: all levels
            have run, with all their tasks.
    """

    rows: OutputRows
    part: OutputPart
    reports: Sequence[Report]
    verdict: Verdict
    emitted_bytes: int
    residuals: Mapping[DestinationId, int] = field(default_factory=dict)
    stopped_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInput:
    """Rows that the tasks of the segment before have stored in the checkpoint folder.

    Attributes:
        names: the names of the files, by partition.
        made_by: the attempts that have made the rows.
    """

    names: Sequence[str]
    made_by: Attempts


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class EpochJob:
    """Consecutive levels of a segment that a cluster runs in one epoch after another.

    Two are equal only if they are one object: a cluster may prepare what it runs again.

    Attributes:
        title: the steps, for users.
        programs: the programs of the levels.
        reads_stored: whether it reads rows that the segment before has stored, and not rows of the
            driver, of which each task of the first level reads all.
    """

    title: str
    programs: Sequence[LevelProgram]
    reads_stored: bool


class EpochResult(NamedTuple):
    """The reports of the tasks of an epoch, and when they were started, by the monotonic clock."""

    reports: Sequence[Report]
    submitted_ns: int


class Helping(Protocol):
    """A context in which the first task of a segment runs, and another job if it needs help."""

    def __enter__(self) -> "Helping": ...

    def __exit__(self, *error: object) -> None:
        """End the context.

        Raises:
            HelpFailedError: user code has failed in the job that helps.
        """
        ...

    def stop(self) -> None:
        """End the job that helps, if it runs: nobody needs its result."""
        ...

    def result_for(self, reports: Sequence[Report]) -> JobResult | None:
        """Return the result of the job that has helped; None: none has helped these attempts.

        Args:
            reports: the reports of the first task.
        """
        ...


class HelpFailedError(Exception):
    """User code has failed in the job that helps: ``result`` is its result."""

    def __init__(self, result: JobResult) -> None:
        super().__init__(result.verdict)
        self.result = result


class Failures(Protocol):
    """Says what the exceptions of a cluster mean."""

    def machines_were_lost(self, error: BaseException) -> bool:
        """Whether it gave up because machines went away, and not because of what ran on them."""
        ...

    def reason_of(self, error: BaseException) -> str:
        """Return one line for users."""
        ...

    def levels_after(self, error: BaseException) -> int | None:
        """Return how many levels of its job come after the one that failed. None: unknown."""
        ...


class Cluster(Failures, Protocol):
    """Runs the tasks of one pipeline.

    Every method that runs tasks may raise exceptions of the cluster's own, which ``Failures``
    explains; user code that fails is in the reports, if the attempt was the last one.

    Threads: one at a time, except for the function that ``helping`` gets, which it calls in
    another thread.

    Attributes:
        tables: the tables of the pipeline.
    """

    tables: Tables

    def scope(self, title: str) -> AbstractContextManager[None]:
        """Name what runs in the context, and let it be cancelled with the pipeline."""
        ...

    def run(self, job: LevelsJob) -> LevelsResult | None:
        """Run levels to their end.

        Returns:
            What the tasks have made; None: the only task has given up, see ``task.first_task``.
        """
        ...

    def reading(self, segment: Segment) -> AbstractContextManager[None]:
        """Read the tables of a segment, if it has any, as the user's settings say."""
        ...

    def helping(self, run: int, help_with: Callable[[Offer], JobResult] | None) -> Helping:
        """Return a context in which the only task of a job may be helped.

        Args:
            run: the number of the job.
            help_with: runs the job that helps. None: no job could help.
        """
        ...

    def no_rows(self) -> ClusterRows:
        """Return the input of one task whose program has its rows."""
        ...

    def rows_of(self, coded: bytes) -> ClusterRows:
        """Return rows that the driver has; see ``schema.coded_batches``."""
        ...

    def stored_rows(self, files: Sequence[OutputFile], store: Settings) -> ClusterRows:
        """Return rows that tasks have stored.

        Args:
            files: the files, one for each task.
            store: see ``OutputPlace``.
        """
        ...

    def elements(self, elements: Mapping[DestinationId, bytes]) -> ClusterRows:
        """Return one row for each of some encoded elements, by destination."""
        ...

    def gather(
        self,
        rows: OutputRows | None,
        edges: Sequence[Edge],
        partitions: int,
        folder: Folder | None = None,
    ) -> Mapping[DestinationId, SideInputRows]:
        """Gather the rows of side inputs where all tasks can read them.

        Args:
            rows: materialised rows, also of other destinations; None: none were written.
            edges: the edges of the side inputs.
            partitions: how many tasks gather a large one.
            folder: for their files; None: that of the job.

        Raises:
            OptionsError: a side input is too large to be sent to executors.
            AmbiguousRowsError: tasks have read rows of other attempts than those accepted.
        """
        ...

    def run_epoch(self, job: EpochJob, source: Rows | StoredInput) -> EpochResult:
        """Run the tasks of some levels of an epoch."""
        ...

    def reshard(self, resharding: Resharding) -> Sequence[NewShard]:
        """Make the shards of ``resharding.new_shards``, until one cannot be made."""
        ...

    def close(self) -> None:
        """Release what was prepared for epochs. To be called after the last job."""
        ...

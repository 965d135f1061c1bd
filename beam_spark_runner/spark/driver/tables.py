"""The Spark tables of a pipeline: opened and checked before anything runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from beam_spark_runner.core.errors import PipelineError, PipelineRefusedError, TableError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.table_steps import READ_TABLE, WRITE_TABLE, TableRead, TableWrite
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.tables import TableToAppend
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.spark.driver.epoch_tables import ONLY_IN_DATABASES, epoch_table
from beam_spark_runner.spark.driver.frame_rows import FrameRows, frame_of
from beam_spark_runner.spark.driver.overwritten_sources import (
    changed_sources,
    check_overwrites,
)
from beam_spark_runner.spark.driver.shared_targets import check_targets
from beam_spark_runner.spark.driver.table_frames import OpenRead, open_frame, rows_of_tables
from beam_spark_runner.spark.driver.table_writes import OpenWrite, begun_write, open_write
from beam_spark_runner.spark.session.handle import SessionHandle


@dataclass(slots=True)
class OpenTables:
    """The tables that a pipeline reads and writes, by step; see ``Tables``.

    Attributes:
        frames: the tables that are read, as frames of the pipeline's session.
        writes: the writes, which have passed their checks.
        begun: the writes that have been tried.
        results: the results of writes that were done or skipped, as JSON.
        appended: the tables of a streaming pipeline that get rows, by the names of steps.
        changed: the reads of targets that an earlier start has begun to write.
    """

    frames: Mapping[TransformId, DataFrame] = field(default_factory=dict)
    writes: Mapping[TransformId, OpenWrite] = field(default_factory=dict)
    begun: set[TransformId] = field(default_factory=set)
    results: dict[TransformId, bytes] = field(default_factory=dict)
    changed: Mapping[TransformId, TableError] = field(default_factory=dict)
    appended: Mapping[str, TableToAppend] = field(default_factory=dict)

    def to_write(self, step: TransformId) -> OpenWrite:
        """See ``Tables``."""
        return self.writes[step]

    def to_append(self, step: str) -> TableToAppend:
        """See ``Tables``."""
        return self.appended[step]

    def source(self, segment: Segment, rows: OutputRows | None) -> OutputRows | None:
        """See ``Tables``."""
        tables = {dest: self.frames[step] for dest, step in segment.tables.items()}
        if not tables:
            return rows
        for step in segment.tables.values():
            if step in self.changed:
                raise self.changed[step]
        frame = rows_of_tables(tables, None if rows is None else frame_of(rows.rows))
        return OutputRows(FrameRows(frame), {} if rows is None else rows.made_by)


def open_tables(
    plan: Plan, session: SessionHandle, begun: Collection[TransformId] = ()
) -> OpenTables:
    """Find the tables of a plan, and check that they can be read and written.

    Args:
        plan: the plan of the pipeline.
        session: the session in which it will run.
        begun: the steps whose writes earlier starts have begun, which have passed their checks.

    Raises:
        PipelineRefusedError: with a TableError for each problem.
    """
    reads: dict[TransformId, OpenRead] = {}
    writes: dict[TransformId, OpenWrite] = {}
    appended: dict[str, TableToAppend] = {}
    problems: list[PipelineError] = []
    for id_, step in plan.graph.transforms.items():
        try:
            if step.urn == READ_TABLE:
                read = TableRead.from_payload(step.payload)
                reads[id_] = OpenRead(read, step.name, open_frame(read, session, step.name))
            if step.urn == WRITE_TABLE:
                write = TableWrite.from_payload(step.payload)
                opened = begun_write if id_ in begun else open_write
                writes[id_] = opened(write, session, step.name)
                if plan.is_streaming:
                    appended[step.name] = epoch_table(writes[id_])
                elif write.keys:
                    raise TableError(ONLY_IN_DATABASES, step.name)
        except TableError as error:
            problems.append(error)
    problems += check_overwrites(reads.values(), writes.values())
    problems += check_targets(writes.values())
    if problems:
        raise PipelineRefusedError(problems)
    if writes:
        session.write_as_program()
    return OpenTables(
        {id_: each.frame for id_, each in reads.items()},
        writes,
        changed=changed_sources(reads, [writes[id_] for id_ in writes if id_ in begun]),
        appended=appended,
    )

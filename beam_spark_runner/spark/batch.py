"""Running a plan: one Spark job after another, each accepted before the next begins."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import BundleFailedError, FnApiProtocolError, SparkJobError
from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.scheduling.attempts import Accepted, Failed, Failure, Rejected, Report, judge
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.exchange import exchange
from beam_spark_runner.spark.materialise import Materialiser
from beam_spark_runner.spark.program import SideInputRows
from beam_spark_runner.spark.programs import Limits, ProgramBuilder
from beam_spark_runner.spark.side_inputs import gather
from beam_spark_runner.spark.task import level_function

_LOGGER = logging.getLogger(__name__)
MAX_RUNS_OF_A_SEGMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a plan runs."""

    spark: SparkSession
    job_id: str
    partitions: int  # of each exchange
    limits: Limits
    materialiser: Materialiser
    folder: str | None  # that driver and workers share
    job_scope: Callable[[str], contextlib.AbstractContextManager[None]]  # names Spark jobs
    check_cancelled: Callable[[], None]  # raises if the job is to end


@dataclass(slots=True)
class Tally:
    """Metrics of what was accepted, and of all that was tried (serialised MonitoringInfos)."""

    committed: tuple[bytes, ...] = ()
    attempted: tuple[bytes, ...] = ()


def run_plan(plan: Plan, setting: Setting, tally: Tally) -> None:
    """Run all segments.

    Raises:
        BundleFailedError: user code failed, as often as Spark retries tasks.
        SparkJobError: Spark gave a segment up, or it never ran on one version of its data.
    """
    run = _PlanRun(plan, setting, tally)
    for segment in plan.segments:
        setting.check_cancelled()
        run.run_segment(segment)


class _PlanRun:
    def __init__(self, plan: Plan, setting: Setting, tally: Tally) -> None:
        self._plan = plan
        self._setting = setting
        self._tally = tally
        self._builder = ProgramBuilder(plan, setting.job_id, setting.limits)
        self._frames: dict[SegmentId, DataFrame] = {}
        self._gathered: dict[DestinationId, SideInputRows] = {}

    def run_segment(self, segment: Segment) -> None:
        """Run one segment until its tasks agree on the data they saw."""
        source = self._source(segment)
        if source is None:
            return  # nothing flows: it reads only what is empty for certain
        self._gather_side_inputs(segment)
        title = f"{segment_title(self._plan, segment)}"
        reason = ""
        for _ in range(MAX_RUNS_OF_A_SEGMENT):
            self._setting.check_cancelled()
            with self._setting.job_scope(title), _spark_failures(title):
                frame, partitions = self._frame(segment, source)
                if segment.writes:
                    frame = self._setting.materialiser.materialise(frame, f"segment-{segment.id}")
                reports = _collect_reports(frame)
            infos = [info for report in reports for info in report.monitoring_infos]
            self._tally.attempted = merge([*self._tally.attempted, *infos])
            match judge(reports, partitions):
                case Accepted():
                    self._tally.committed = merge([*self._tally.committed, *infos])
                    if segment.writes:
                        self._frames[segment.id] = frame
                    return
                case Failed(failure):
                    raise _error_of(failure)
                case Rejected(why):
                    reason = why
                    _LOGGER.warning("%s runs again: %s", title, why)
        raise SparkJobError(
            title, f"its tasks never agreed in {MAX_RUNS_OF_A_SEGMENT} runs: {reason}"
        )

    def _source(self, segment: Segment) -> DataFrame | None:
        frames: list[DataFrame] = []
        if segment.impulses:
            frames.append(_impulses(self._setting.spark, segment.impulses))
        by_writer: dict[SegmentId, list[int]] = {}
        for dest, writers in segment.reads.items():
            for writer in writers:
                by_writer.setdefault(writer, []).append(int(dest))
        for writer, dests in sorted(by_writer.items()):
            if writer in self._frames:
                id_ = F.col("dest").bitwiseAND(rows.DEST_MASK)
                frames.append(self._frames[writer].filter(id_.isin(dests)))
        if not frames:
            return None
        source = frames[0]
        for frame in frames[1:]:
            source = source.union(frame)
        return source

    def _frame(self, segment: Segment, source: DataFrame) -> tuple[DataFrame, Mapping[int, int]]:
        """Chain the levels. Also returns the number of tasks of each level behind an exchange."""
        frame, partitions = source, self._setting.partitions
        counts: dict[int, int] = {}
        for index, level in enumerate(segment.levels):
            if level.has_exchange:
                frame = exchange(frame, partitions, self._builder.readers(segment, index))
                counts[index] = partitions
            is_last = index + 1 == len(segment.levels)
            program = self._builder.level(
                segment, index, 0 if is_last else partitions, self._gathered
            )
            frame = frame.mapInArrow(level_function(program), rows.SPARK_SCHEMA)
        return frame, counts

    def _gather_side_inputs(self, segment: Segment) -> None:
        for dest in segment.side_inputs:
            if dest in self._gathered:
                continue
            frames = [
                self._frames[writer.id]
                for writer in self._plan.segments
                if dest in writer.writes and writer.id in self._frames
            ]
            frame: DataFrame | None = None
            for part in frames:
                frame = part if frame is None else frame.union(part)
            edge = self._builder.edges[dest]
            with self._setting.job_scope(f"side input of {edge.name}"):
                self._gathered[dest] = gather(
                    frame, edge, self._setting.job_id, self._setting.folder
                )


def segment_title(plan: Plan, segment: Segment) -> str:
    """Name a segment by the steps it runs, for Spark's UI and for messages."""
    names = [plan.stages[stage].name for level in segment.levels for stage in level.stages]
    text = " → ".join(names)
    return text if len(text) <= 200 else text[:199] + "…"


def _impulses(spark: SparkSession, dests: Sequence[DestinationId]) -> DataFrame:
    count = len(dests)
    ids = F.array(*[F.lit(int(dest)) for dest in dests])
    return spark.range(0, count, 1, 1).select(
        F.element_at(ids, (F.col("id") + 1).cast("int")).alias("dest"),
        F.lit(0).cast("long").alias("route"),
        F.lit(0).cast("long").alias("order"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(bytearray(b"")).alias("value"),
    )


def _collect_reports(frame: DataFrame) -> list[Report]:
    found = frame.filter(F.col("dest") == rows.REPORT).select("value").collect()
    return [_report_of(reports_pb2.TaskReport.FromString(bytes(row[0]))) for row in found]


def _report_of(proto: reports_pb2.TaskReport) -> Report:
    failure = None
    if proto.HasField("failure"):
        failure = Failure(
            step=proto.failure.step,
            cause=proto.failure.cause,
            traceback_text=proto.failure.traceback,
            kind=proto.failure.kind,
        )
    return Report(
        level=proto.level,
        partition=proto.partition,
        attempt=proto.attempt,
        consumed_count=proto.consumed_count,
        consumed_sum=proto.consumed_sum,
        monitoring_infos=tuple(proto.monitoring_infos),
        failure=failure,
        poisoned=proto.poisoned,
    )


def _error_of(failure: Failure) -> Exception:
    if failure.kind == FnApiProtocolError.__name__:
        return FnApiProtocolError(failure.cause)
    return BundleFailedError(failure.step, failure.cause, failure.traceback_text)


@contextlib.contextmanager
def _spark_failures(title: str) -> Iterator[None]:
    """Say what Spark's exception means, in one line, with the steps that ran."""
    try:
        yield
    except Exception as error:
        raise SparkJobError(title, _reason(str(error))) from error


def _reason(text: str) -> str:
    for pattern, reason in _KNOWN_REASONS:
        if re.search(pattern, text):
            return f"{reason} ({_first_line(text)})"
    return _first_line(text)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"


_KNOWN_REASONS = (
    (r"No space left on device", "a disk is full: Spark's local directory, or the temp folder"),
    (
        r"Python worker exited unexpectedly",
        "user code, or a library it calls, ended the Python worker (os._exit, a crash, "
        "or the system's out-of-memory killer)",
    ),
    (r"OutOfMemoryError", "the JVM ran out of memory"),
)

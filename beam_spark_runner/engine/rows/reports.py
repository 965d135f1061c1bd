"""Reports of tasks to the driver, from and to ``reports.proto``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.core.decimals import decimal_in
from beam_spark_runner.core.errors import (
    BundleFailedError,
    CheckpointStorageError,
    EnvironmentStartError,
    FnApiProtocolError,
    HarnessStreamError,
    InvalidPipelineError,
    LostHarnessError,
    OutputStorageError,
    RowStorageError,
    RunnerError,
    SdkDisconnectedError,
    StuckBundleError,
)
from beam_spark_runner.core.raised import Raised
from beam_spark_runner.core.rendering import MAX_TRACEBACK_LENGTH, message_of, valid_text
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import consumed_of
from beam_spark_runner.scheduling.attempts import (
    Failure,
    KeyedReport,
    Report,
    Residuals,
    ShardReport,
    StageReport,
    TableRowsReport,
    ViewReport,
    Waiting,
)
from beam_spark_runner.scheduling.task_work import KeyRows, TaskWork
from beam_spark_runner.state.checked_blocks import DamagedFileError
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.remote.key_store import OvertakenError, StateStoreError
from beam_spark_runner.state.stored_deltas import ShardStorageError

_Name = TypeVar("_Name", int, str)

_LOST_HARNESSES = {kind.__name__: kind for kind in (EnvironmentStartError, SdkDisconnectedError)}


def reports_of(coded: Iterable[bytes]) -> list[Report]:
    """Decode reports."""
    return [_report_of(reports_pb2.TaskReport.FromString(report)) for report in coded]


def work_of(proto: reports_pb2.TaskWork) -> TaskWork:
    """Decode what a task has done, for people."""
    largest = proto.largest
    return TaskWork(
        level=proto.level,
        partition=proto.partition,
        spent_s=proto.spent_us / 1e6,
        rows=proto.rows,
        largest=KeyRows(step=largest.step, text=largest.text, rows=largest.rows)
        if proto.HasField("largest")
        else None,
        is_done=proto.is_done,
    )


def without_reports(
    batches: Iterable[pa.RecordBatch], reports: list[bytes]
) -> Iterator[pa.RecordBatch]:
    """Yield what a task has emitted, but add its reports to ``reports``."""
    for batch in map(schema.conformed, batches):
        is_report = schema.dests_of(batch) == schema.REPORT
        if is_report.any():
            reports += batch.filter(pa.array(is_report)).column("value").to_pylist()
            batch = batch.filter(pa.array(~is_report))
        if len(batch):
            yield batch


def report_row(report: reports_pb2.TaskReport, partitions: int) -> pa.RecordBatch:
    """Return the row that brings a report to the driver, through all exchanges that follow.

    Args:
        report: the report of a task.
        partitions: the number of partitions of the next exchange.
    """
    targets = routing.routes_to_partitions(routing.REPORT_CODE, partitions)
    route = np.array([targets[report.partition % partitions]], np.int64)
    return schema.batch_of(schema.REPORT, route, None, None, [report.SerializeToString()])


def _report_of(proto: reports_pb2.TaskReport) -> Report:
    failure = None
    if proto.HasField("failure"):
        failure = Failure(
            step=proto.failure.step,
            cause=proto.failure.cause,
            traceback_text=proto.failure.traceback,
            kind=proto.failure.kind,
            raised=_raised_of(proto.failure.raised) if proto.failure.HasField("raised") else None,
        )
    return Report(
        level=proto.level,
        partition=proto.partition,
        attempt=proto.attempt,
        consumed=consumed_of(proto.consumed),
        monitoring_infos=tuple(proto.monitoring_infos),
        failure=failure,
        is_poisoned=proto.poisoned,
        emitted_bytes=proto.emitted_bytes,
        watermarks_us=dict(proto.watermarks_us),
        residuals=_residuals_of(proto.residuals),
        worker=proto.worker,
        messages_sent=proto.messages_sent,
        has_callbacks=proto.finalizes,
        shard=_shard_of(proto.shard) if proto.HasField("shard") else None,
        deferred=_residuals_of(proto.deferred),
        views=tuple(
            ViewReport(view.dest, view.window, view.file, view.expires_us, view.part)
            for view in proto.views
        ),
        table_rows=tuple(
            TableRowsReport(rows.dest, rows.file, rows.rows) for rows in proto.table_rows
        ),
        looks_up_us=dict(proto.looks_up_us),
        finished=frozenset(proto.finished),
        stages={dest: _stage_of(status) for dest, status in proto.stages.items()},
        spent_us=proto.spent_us,
        work=work_of(proto.work) if proto.HasField("work") else None,
        returned_rows=proto.returned_rows if proto.HasField("returned_rows") else None,
        unread_rows=proto.unread_rows,
    )


def _raised_of(proto: reports_pb2.Raised) -> Raised:
    return Raised(
        classes=tuple(proto.classes),
        attributes=proto.attributes,
        cause=proto.cause,
        parts=tuple(map(_raised_of, proto.parts)),
    )


def _raised_proto(raised: Raised) -> reports_pb2.Raised:
    return reports_pb2.Raised(
        classes=raised.classes,
        attributes=valid_text(raised.attributes),
        cause=valid_text(raised.cause),
        parts=map(_raised_proto, raised.parts),
    )


def _residuals_of(protos: Mapping[_Name, reports_pb2.Residuals]) -> dict[_Name, Residuals]:
    return {
        name: Residuals(proto.count, proto.hold_us, proto.size if proto.HasField("size") else None)
        for name, proto in protos.items()
    }


def _stage_of(proto: reports_pb2.StageStatus) -> StageReport:
    waiting = None
    if proto.HasField("waiting"):
        waiting_proto = proto.waiting
        waiting = Waiting(waiting_proto.hold_us, waiting_proto.window, tuple(waiting_proto.views))
    hold_us = proto.hold_us if proto.HasField("hold_us") else None
    left = Residuals(proto.left.count, proto.left.hold_us) if proto.HasField("left") else None
    return StageReport(proto.output_us, hold_us, waiting, left)


def _shard_of(proto: reports_pb2.ShardReport) -> ShardReport:
    return ShardReport(
        epoch=proto.epoch,
        attempt=proto.attempt,
        next_event_us=proto.next_event_us if proto.HasField("next_event_us") else None,
        next_clock_us=proto.next_clock_us if proto.HasField("next_clock_us") else None,
        was_cut_off=proto.was_cut_off,
        awaited_us=dict(proto.awaited_us),
        was_interrupted=proto.was_interrupted,
        awaits_commit=proto.awaits_commit,
        older=tuple((delta.epoch, delta.attempt) for delta in proto.older),
        was_rebuilt=proto.was_rebuilt,
        stored_bytes=proto.stored_bytes,
        stored_records=proto.stored_records,
        keyed=tuple(
            KeyedReport(
                *(keyed.store, keyed.epoch, keyed.attempt),
                tuple((older.epoch, older.attempt) for older in keyed.older),
                keyed.needs_parts,
            )
            for keyed in proto.keyed
        ),
        needs={stage_needs.stage: frozenset(stage_needs.declared) for stage_needs in proto.needs},
        group_bytes=proto.group_bytes,
    )


def failure_proto(error: RunnerError) -> reports_pb2.Failure:
    """Return the error of a task's last attempt, for its report; ``error_of`` is the inverse."""
    match error:
        case BundleFailedError():
            step, cause, text = error.step, error.cause, error.traceback_text
        case StuckBundleError():
            step, cause, text = error.step, str(error.lasted_s), error.stack
        case InvalidPipelineError():
            step, cause, text = error.where, error.problem, ""
        case CheckpointStorageError() | OvertakenError():
            step, cause, text = error.place, error.problem, ""
        case RowStorageError():
            step, cause, text = error.folder, error.problem, ""
        case DamagedFileError():
            step, cause, text = error.name, error.why, ""
        case LostHarnessError():
            step, cause, text = "", error.problem, error.output
        case _:
            step, cause, text = "", message_of(error), ""
    raised = error.raised if isinstance(error, BundleFailedError) else None
    return reports_pb2.Failure(
        kind=type(error).__name__,
        step=valid_text(step),
        cause=valid_text(cause),
        traceback=valid_text(text, MAX_TRACEBACK_LENGTH),
        raised=None if raised is None else _raised_proto(raised),
    )


def error_of(failure: Failure) -> RunnerError:
    """Return the error that a task failed with."""
    if failure.kind == FnApiProtocolError.__name__:
        return FnApiProtocolError(failure.cause)
    if failure.kind == StuckBundleError.__name__:
        lasted_s = decimal_in(failure.cause)
        return StuckBundleError(failure.step, lasted_s or 0, failure.traceback_text)
    if failure.kind == InvalidPipelineError.__name__:
        return InvalidPipelineError(failure.cause, failure.step)
    if failure.kind == HarnessStreamError.__name__:
        return HarnessStreamError(failure.cause)
    if failure.kind == ShardStorageError.__name__:
        return ShardStorageError(failure.step, failure.cause)
    if failure.kind == StateStoreError.__name__:
        return StateStoreError(failure.step, failure.cause)
    if failure.kind == OvertakenError.__name__:
        return OvertakenError(failure.step, failure.cause)
    if failure.kind == OutputStorageError.__name__:
        return OutputStorageError(failure.step, failure.cause)
    if failure.kind == RowStorageError.__name__:
        return RowStorageError(failure.step, failure.cause)
    if failure.kind == CorruptDeltaError.__name__:
        return CorruptDeltaError(failure.step, failure.cause)
    if failure.kind == DamagedFileError.__name__:
        return DamagedFileError(failure.step, failure.cause)
    if failure.kind in _LOST_HARNESSES:
        return _LOST_HARNESSES[failure.kind](failure.cause, failure.traceback_text)
    return BundleFailedError(failure.step, failure.cause, failure.traceback_text, failure.raised)

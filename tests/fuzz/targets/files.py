"""Files and rows that the runner itself has written, and that somebody has damaged."""

import io
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from google.protobuf.message import Message

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import MarkReader, attempts_in
from beam_spark_runner.engine.rows.reports import error_of, reports_of
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery import manifest
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import Manifest, View, ViewId
from beam_spark_runner.state.chain import Chain, ChainedDelta, ShardVersion, SliceStart
from beam_spark_runner.state.delta import DeltaWriter, read_chain, read_changes
from tests.fuzz.targets.base import BytesTarget, Messages, MessageTarget, Target

_CHAIN: Chain = (
    ChainedDelta(ShardVersion(1, 2), 10, SliceStart(0, b"")),
    ChainedDelta(ShardVersion(8, (1 << 63) - 1), 1 << 40, SliceStart(7, b"\xff" * 51)),
)


class Deltas(BytesTarget):
    """Deltas of shards."""

    name = "deltas"

    def run(self, case: bytes) -> object:
        chain = read_chain(io.BytesIO(case), "delta")
        return len(list(read_changes(io.BytesIO(case), "delta", chain[-1].version)))


class ChangesOfDeltas(BytesTarget):
    """The same, by a reader that knows the chain."""

    name = "delta-changes"

    def run(self, case: bytes) -> object:
        return len(list(read_changes(io.BytesIO(case), "delta", _CHAIN[-1].version)))


class Manifests(BytesTarget):
    """Manifests of epochs."""

    name = "manifests"

    def run(self, case: bytes) -> object:
        return manifest.decode(case, "manifest")


class Reports(MessageTarget[reports_pb2.TaskReport]):
    """Reports of tasks."""

    name = "reports"

    def take(self, message: reports_pb2.TaskReport) -> object:
        (report,) = reports_of([message.SerializeToString()])
        return report.failure and str(error_of(report.failure))


class Marks(MessageTarget[reports_pb2.AttemptMark]):
    """Marks between tasks."""

    name = "marks"

    def take(self, message: reports_pb2.AttemptMark) -> object:
        coded = message.SerializeToString()
        batch = schema.batch_of(schema.CONTROL, np.zeros(1, np.int64), None, None, [coded])
        reader = MarkReader()
        reader.without_marks(batch)
        return reader.consumed(), attempts_in([coded])


def _delta() -> bytes:
    with TemporaryDirectory() as folder:
        writer = DeltaWriter(Path(folder) / "delta")
        for number in range(9):
            writer.put(b"key %d" % number, b"value" * number)
        writer.delete(b"key 3")
        writer.finish(_CHAIN)
        return (Path(folder) / "delta").read_bytes()


def _manifest() -> bytes:
    return manifest.encode(
        Manifest(
            epoch=7,
            fence=2,
            lineage="main",
            parent=6,
            clock_us=5,
            heads={(1, 0): Head(DeltaId(7, 1 << 62), (DeltaId(5, 1), DeltaId(6, 2)))},
            watermarks_us={4: -(1 << 62), 5: 1 << 62},
            next_event_us=12,
            views={ViewId(6, b"\x00w", b"\x01"): View("main-6.view", 9)},
            metrics=(b"\x00\xff", b"m"),
            plan={"step Count": StoredStage(1, 2, True, 3, False, "ref_1", "state n")},
            steps={"ref_1": "Count"},
            partitions=2,
            key_groups=128,
        )
    )


def _reports() -> list[Any]:
    """Return reports with each field set, and one of each kind of failure."""
    whole = filled(reports_pb2.TaskReport())
    kinds = (
        *("FnApiProtocolError", "StuckBundleError", "InvalidPipelineError", "HarnessStreamError"),
        *("ShardStorageError", "CorruptDeltaError", "EnvironmentStartError", "other"),
    )
    failures = [
        reports_pb2.TaskReport(
            failure=reports_pb2.Failure(kind=kind, step="step", cause="600", traceback="text")
        )
        for kind in kinds
    ]
    return [whole, *failures]


def filled(message: Any, depth: int = 3) -> Any:
    """Set each field of a message to something, and return it."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key = field.message_type.fields_by_name["key"]
            each = field.message_type.fields_by_name["value"]
            place = "key" if key.cpp_type == key.CPPTYPE_STRING else 7
            if each.message_type is not None:
                filled(value[place], depth - 1)
            else:
                value[place] = _something(each)
        elif field.message_type is not None:
            if depth:
                filled(value.add() if field.is_repeated else value, depth - 1)
        elif field.is_repeated:
            value.append(_something(field))
        else:
            setattr(message, field.name, _something(field))
    return message


def _something(field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        return b"\1a" if field.type == field.TYPE_BYTES else "text"
    return field.cpp_type == field.CPPTYPE_BOOL or 1


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    deltas, reports = [_delta()], _reports()
    marks: Sequence[Message] = [filled(reports_pb2.AttemptMark())]
    return [
        Deltas(deltas),
        ChangesOfDeltas(deltas),
        Manifests([_manifest()]),
        Reports(reports),
        Marks(marks),  # type: ignore[arg-type]
    ]

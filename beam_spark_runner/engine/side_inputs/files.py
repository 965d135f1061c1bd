"""Files in which workers look up side inputs: sorted blocks, which are mapped, not loaded.

A file holds batches of a few megabytes. Within a batch, rows are sorted by
``route``: a hash of key and window. A batch is cut into blocks (``sorted_rows``,
``state.checked_blocks``). The index of the file has the first and the last route of
each block, so that a reader verifies and searches the blocks that may have a
key, and touches no others. Rows are those of ``SideInputWriter``.
"""

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import MarkReader
from beam_spark_runner.engine.side_inputs.sorted_rows import SortedRows
from beam_spark_runner.state.checked_blocks import BlockWriter
from beam_spark_runner.storage.folder import Folder

SCHEMA = pa.schema(
    [
        ("route", pa.int64()),
        ("count", pa.int64()),  # of values
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
EPOCHS_SCHEMA = SCHEMA.append(pa.field("epoch", pa.int64()))
"""The schema in epochs, with the epoch in which the values of a row have come."""
BATCH_BYTES = 4 << 20


class SortedWriter:
    """Writes rows to one file, in batches of about ``BATCH_BYTES``.

    Args:
        path: the path of the file.
        is_sorted: whether rows come sorted by route, and need not be sorted within each batch.
        name: see ``BlockWriter``.
    """

    def __init__(self, path: str, *, is_sorted: bool, name: str = "") -> None:
        self._file = open(path, "wb", 1 << 20)  # noqa: SIM115  (closed by ``close``)
        self._writer = BlockWriter(self._file, name)
        self._is_sorted = is_sorted
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        for piece in _slices(batch):
            if self._buffered_bytes + piece.nbytes > BATCH_BYTES:
                self._write()
            self._buffered.append(piece)
            self._buffered_bytes += piece.nbytes

    def _write(self) -> None:
        if not self._buffered:
            return
        batch = pa.concat_batches(self._buffered)
        self._buffered, self._buffered_bytes = [], 0
        batch = batch if self._is_sorted else sorted_by_route(batch)
        for block, first, last in SortedRows.of_arrow(batch).blocks():
            self._writer.add(block, first, last)

    def close(self) -> None:
        """Write the buffered rows, and the index."""
        self._write()
        self._writer.finish()
        self._file.close()


def sorted_by_route(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sort rows by their first column. They must be fewer than 2 GB."""
    routes = batch.column(0).to_numpy()
    if (routes[1:] >= routes[:-1]).all():
        return batch
    return batch.take(pa.array(np.argsort(routes, kind="stable")))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch that is larger than ``BATCH_BYTES``."""
    count = max(1, min(len(batch), -(-batch.nbytes // BATCH_BYTES)))
    step = -(-len(batch) // count) if len(batch) else 1
    for start in range(0, len(batch), step):
        yield batch.slice(start, step)


def whole_rows(
    batches: Iterator[pa.RecordBatch], marks: MarkReader
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows between tasks as rows of ``SCHEMA``, with their destination.

    Long values are joined: one task has written all pieces of a value, with one route, so that
    all of them are here. ``marks`` reads the marks among the rows.
    """
    joiner = schema.PieceJoiner()
    for batch in map(marks.without_marks, batches):
        flags = batch.column(0).to_numpy()
        if (flags & schema.PIECE).any():
            block = joiner.join_block(schema.block_of(batch))
            dests = block.dests & schema.DEST_MASK
            columns = [
                pa.array(block.routes),
                pa.array(block.orders),
                pa.array(block.keys, pa.binary()),
                pa.array(block.values, pa.binary()),
            ]
        else:
            dests, columns = flags & schema.DEST_MASK, batch.columns[1:]
        joined_rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        distinct_dests = np.unique(dests)
        for dest in distinct_dests.tolist():
            if len(distinct_dests) == 1:
                yield dest, joined_rows
            else:
                yield dest, joined_rows.filter(pa.array(dests == dest))
    joiner.check_empty()


PACKED_SCHEMA = "dest int, size long, blob binary"


def pack_up_to(
    limit_bytes: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task function that yields each destination's rows as one value.

    A destination with more than ``limit_bytes`` in the task has no value, only the size. The value
    of ``schema.REPORT`` is the task's SideInputReport.
    """

    def pack_side_inputs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        marks = MarkReader()
        sizes: dict[int, int] = {}
        batches_of_dest: dict[int, list[pa.RecordBatch]] = {}
        for dest, batch in whole_rows(batches, marks):
            size = sizes[dest] = sizes.get(dest, 0) + batch.nbytes
            if size <= limit_bytes:
                batches_of_dest.setdefault(dest, []).append(batch)
            else:
                batches_of_dest.pop(dest, None)
        blobs = {
            dest: blob_of(batches_of_dest[dest]) if dest in batches_of_dest else None
            for dest in sizes
        }
        for dest, blob in {**blobs, schema.REPORT: coded_report(marks)}.items():
            size = sizes.get(dest, 0)
            yield pa.record_batch(
                {
                    "dest": pa.array([dest], pa.int32()),
                    "size": pa.array([size], pa.int64()),
                    "blob": pa.array([blob], pa.binary()),
                }
            )

    return pack_side_inputs


def blob_of(batches: list[pa.RecordBatch]) -> bytes:
    """Return batches as bytes; ``batches_of`` is the inverse."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def batches_of(blob: bytes) -> list[pa.RecordBatch]:
    """Undo ``blob_of``."""
    with pa.ipc.open_stream(blob) as reader:
        return list(reader)


def write_files(
    folder: Folder, name: str, *, is_sorted: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task function that writes one file, and names it in its SideInputReport.

    Each attempt writes its own file: those of attempts that Spark drops are named in no report
    that the driver gets.
    """

    def write_side_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file = f"{name}-{uuid.uuid4().hex}.arrow"
        marks = MarkReader()
        writer: SortedWriter | None = None
        with contextlib.ExitStack() as stack:
            for _, batch in whole_rows(batches, marks):
                if writer is None:
                    path = stack.enter_context(folder.new_file(file))
                    writer = SortedWriter(path, is_sorted=is_sorted)
                writer.add(batch)
            if writer is not None:
                writer.close()
        report = coded_report(marks, file="" if writer is None else file)
        yield pa.record_batch({"report": pa.array([report], pa.binary())})

    return write_side_input


REPORT_PART = -1
PARTS_SCHEMA = "part int, attempt long, blob binary"


def blobs_in_parts(
    parts: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task function that yields values of some megabytes, each in a random part.

    Each has the number of its task attempt. The one in ``REPORT_PART`` is the task's
    SideInputReport, which has the number of values in each part.
    """

    def pack_side_input(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = random.SystemRandom().getrandbits(63)
        marks = MarkReader()
        counts: Counter[int] = Counter()
        buffered: list[pa.RecordBatch] = []
        size = 0

        def in_part(part: int, blob: bytes) -> pa.RecordBatch:
            columns = {
                "part": pa.array([part], pa.int32()),
                "attempt": pa.array([attempt], pa.int64()),
                "blob": pa.array([blob], pa.binary()),
            }
            return pa.record_batch(columns)

        def buffered_blob() -> pa.RecordBatch:
            nonlocal buffered, size
            part = random.randrange(parts)
            counts[part] += 1
            blob = blob_of(buffered)
            buffered, size = [], 0
            return in_part(part, blob)

        for _, batch in whole_rows(batches, marks):
            buffered.append(batch)
            size += batch.nbytes
            if size >= BATCH_BYTES:
                yield buffered_blob()
        if buffered:
            yield buffered_blob()
        yield in_part(REPORT_PART, coded_report(marks, attempt=attempt, blobs=counts))

    return pack_side_input


def coded_report(marks: MarkReader, **fields: Any) -> bytes:
    """Return a serialised SideInputReport: the attempts that the task has read, and ``fields``."""
    report = reports_pb2.SideInputReport(**fields)
    for run, attempts in marks.consumed().items():
        report.consumed[run].CopyFrom(attempts)
    return bytes(report.SerializeToString())

"""Gathers side inputs in one process."""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.rows.marks import MarkReader
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.engine.side_inputs import files

INLINE_BYTES = 1 << 20
"""The largest file that the closure of a task may have."""


def new_id(job_id: str, dest: DestinationId) -> str:
    """Return an id for the rows of a side input.

    It is unique: if their writers run again, workers must not use the rows in their caches.
    """
    return f"{job_id}/{int(dest)}/{uuid.uuid4().hex[:8]}"


def file_name(id_: str) -> str:
    """Return the name of a file of a side input, which is unique like its id."""
    return f"side-input-{id_.replace('/', '-')}"


def whole_rows(
    batches: Iterable[pa.RecordBatch], dests: Container[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of some destinations, with their pieces joined.

    Args:
        batches: rows of any destinations, with marks.
        dests: the destinations.
    """
    for dest, batch in files.whole_rows(iter(batches), MarkReader()):
        if dest in dests:
            yield dest, batch


def small_side_input(
    batches: Sequence[pa.RecordBatch],
    edge: Edge,
    id_: str,
    share: Callable[[Path], SharedFile],
) -> SideInputRows:
    """Sort rows in memory, and return them as ``sorted_side_input`` does."""
    rows = [files.sorted_by_route(pa.concat_batches(batches))] if batches else []
    return sorted_side_input(rows, edge, id_, share)


def sorted_side_input(
    batches: Iterable[pa.RecordBatch],
    edge: Edge,
    id_: str,
    share: Callable[[Path], SharedFile],
) -> SideInputRows:
    """Bring sorted rows into the closure, or one file.

    Args:
        batches: the rows, see ``whole_rows``.
        edge: the edge of the side input.
        id_: see ``new_id``.
        share: makes a copy of a file that all tasks can read.
    """
    with tempfile.TemporaryDirectory(prefix="beam-") as folder:
        path = Path(folder, f"{file_name(id_)}.arrow")
        with contextlib.closing(files.SortedWriter(str(path), is_sorted=True)) as writer:
            for batch in batches:
                writer.add(batch)
        if os.path.getsize(path) > INLINE_BYTES:
            return SideInputRows(id=id_, code=edge.code, files=(share(path),))
        return SideInputRows(id=id_, code=edge.code, inline=path.read_bytes())

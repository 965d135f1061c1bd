"""Gathering a side input: from materialised rows to what workers can look up."""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.program import Edge, SideInputRows

INLINE_BYTES = 1 << 20
SHARED_BYTES = 1 << 30
"""Spark cannot broadcast more than 2 GB, and every Python worker holds a copy."""
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def gather(
    frame: DataFrame | None,
    edge: Edge,
    job_id: str,
    folder: str | None,
    share: Callable[[str, bytes], tuple[Any, str | None]],
) -> SideInputRows:
    """Bring the rows of one side input to where all workers find them.

    Args:
        frame: materialised rows, other destinations' among them; None: none were written.
        edge: of the side input.
        job_id: of this run.
        folder: that all workers can read; None: there is none, so that what does
            not fit the closure is given to ``share``.
        share: see ``SessionHandle.share``.

    Raises:
        OptionsError: too large for what Spark hands around, and no folder.
    """
    packed: list[pa.RecordBatch] = []
    if frame is not None:
        mine = frame.filter(f"(dest & {rows.DEST_MASK}) = {int(edge.dest)}")
        for (blob,) in mine.mapInArrow(_pack, "blob binary").toLocalIterator():
            packed.extend(pa.ipc.open_stream(bytes(blob)))
    size = sum(batch.nbytes for batch in packed)
    # Not by the edge alone: if its writers run again, workers must not keep the rows they have.
    id_ = f"{job_id}/{edge.dest}/{uuid.uuid4().hex[:8]}"
    if size <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        _write(packed, sink)
        return SideInputRows(id=id_, inline=sink.getvalue().to_pybytes())
    if folder is None:
        if size > SHARED_BYTES:
            raise OptionsError(
                "temp_location",
                f"the side input read by {edge.name} has {size} bytes, more than the "
                f"{SHARED_BYTES} that are handed to executors over the network; name storage "
                "that all executors can read",
            )
        sink = pa.BufferOutputStream()
        _write(packed, sink)
        broadcast, artifact = share(_file_name(id_), sink.getvalue().to_pybytes())
        return SideInputRows(id=id_, broadcast=broadcast, artifact=artifact)
    path = os.path.join(folder, _file_name(id_))
    with pa.OSFile(path, "wb") as file:
        _write(packed, file)
    return SideInputRows(id=id_, path=path)


def _file_name(id_: str) -> str:
    return f"side-input-{id_.replace('/', '-')}.arrow"


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put whole batches into single values: a row by itself costs the driver 20 us and 500 bytes.

    The pieces of a long value were written by one task, so they lie in one partition.
    """
    joiner = rows.PieceJoiner()
    for batch in batches:
        block = joiner.join_block(rows.block_of(batch))
        if not len(block):
            continue
        whole = pa.record_batch(
            [pa.array(block.keys, pa.binary()), pa.array(block.values, pa.binary())],
            schema=_SCHEMA,
        )
        sink = pa.BufferOutputStream()
        _write([whole], sink)
        yield pa.record_batch({"blob": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
    joiner.check_empty()


def _write(batches: Iterable[pa.RecordBatch], sink: Any) -> None:
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)

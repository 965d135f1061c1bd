"""Gathering a side input: from materialised rows to what workers can look up."""

import os

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.program import Edge, SideInputRows

INLINE_BYTES = 1 << 20
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def gather(frame: DataFrame | None, edge: Edge, job_id: str, folder: str | None) -> SideInputRows:
    """Bring the rows of one side input to where all workers find them.

    Args:
        frame: materialised rows, other destinations' among them; None: none were written.
        edge: of the side input.
        job_id: of this run.
        folder: that all workers can read; None: there is none, so that only
            what fits the closure can be given to them.

    Raises:
        OptionsError: too large for the closure, and no folder.
    """
    joiner = rows.PieceJoiner()
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    if frame is not None:
        mine = frame.filter(F.col("dest").bitwiseAND(rows.DEST_MASK) == int(edge.dest))
        for dest, key, value in mine.select("dest", "key", "value").toLocalIterator():
            if dest & rows.PIECE:
                whole = joiner.add(bytes(value))
                if whole is None:
                    continue
                value = whole
            keys.append(bytes(key))
            values.append(bytes(value))
            size += len(keys[-1]) + len(values[-1])
        joiner.check_empty()
    table = pa.table([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=_SCHEMA)
    id_ = f"{job_id}/{edge.dest}"
    if size <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_table(table)
        return SideInputRows(id=id_, inline=sink.getvalue().to_pybytes())
    if folder is None:
        raise OptionsError(
            "temp_location",
            f"the side input read by {edge.name} has {size} bytes, more than fits a task's "
            "closure; name storage that all executors can read",
        )
    path = os.path.join(folder, f"side-input-{edge.dest}.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
        writer.write_table(table)
    return SideInputRows(id=id_, path=path)

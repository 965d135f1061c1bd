"""The schema of all rows between tasks.

``dest``   the destination: a DestinationId, and flags in the bits above it.
``route``  partitioning and sort key, see ``core.routing``.
``order``  event time in us where the destination needs it, or ``BARE`` for an element without
           timestamp and pane; of a residual, when it is due, in us; of a side input, the number
           of values in the row; of a table, the number of its rows; else 0.
``key``    encoded key (and window); null where the destination does not group.
``value``  an encoded element, or encoded windowed value if ``WINDOWED`` is set; of a
           side input, nested encodings of many values of one key and window.

A value longer than the row limit travels as several rows, ``PIECE`` set, each
piece after a header. Spark does not keep the order of rows with equal routes,
so a header has the id of its value, and the position in it.
"""

import base64
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_spark_runner.core.errors import InvariantError

ARROW_SCHEMA = pa.schema(
    [
        ("dest", pa.int32()),
        ("route", pa.int64()),
        ("order", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
NO_ROWS = pa.RecordBatch.from_pylist([], ARROW_SCHEMA)

DEST_BITS = 24
DEST_MASK = (1 << DEST_BITS) - 1
CONTROL = 0  # an AttemptMark
REPORT = DEST_MASK  # a TaskReport
WINDOWED = 1 << DEST_BITS
PIECE = 1 << (DEST_BITS + 1)
LONG_KEY = 1 << (DEST_BITS + 2)  # ``key`` is a digest; the key itself precedes the value
PACKED = 1 << (DEST_BITS + 3)  # the value holds several ones, see ``packed_rows``

BARE = -(1 << 63)  # before every event time
MAX_VALUE_BYTES = (1 << 31) - (1 << 16)
"""The longest element that pieces can carry: they must fit one Arrow array again."""

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

# For batches of some kilobytes, a pool of threads costs more than it saves.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_UNCOMPRESSING = pa.ipc.IpcReadOptions(use_threads=False)
_PIECE_HEADER = struct.Struct("<16sII")  # id of the value, position, number of pieces
PIECE_POSITION = 16  # offset of the position in a piece; it has four bytes


@dataclass(slots=True)
class RowBatch:
    """Rows of one record batch, as columns that Python can index."""

    dests: Int32Array
    routes: Int64Array
    orders: Int64Array
    keys: list[bytes | None]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.values)


def batch_of(
    dest: int,
    routes: Int64Array,
    orders: Int64Array | None,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes],
) -> pa.RecordBatch:
    """Build a record batch whose rows all go to ``dest`` (flags included)."""
    count = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(count, dest, np.int32)),
            pa.array(routes),
            pa.array(np.zeros(count, np.int64) if orders is None else orders),
            pa.nulls(count, pa.binary()) if keys is None else pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        ],
        schema=ARROW_SCHEMA,
    )


def coded_batches(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW_SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decoded_batches(coded: bytes) -> list[pa.RecordBatch]:
    """Decode batches; the inverse of ``coded_batches``."""
    with pa.ipc.open_stream(coded) as reader:
        return list(reader)


def rows_to(dests: Int32Array, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch to some destinations: the batch itself, if all are."""
    is_wanted = np.isin(dests_of(batch), dests)
    return batch if is_wanted.all() else batch.filter(pa.array(is_wanted))


def coded_block(batch: pa.RecordBatch) -> memoryview:
    """Encode a batch for a file: compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW_SCHEMA, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def decoded_block(block: bytes | memoryview) -> pa.RecordBatch:
    """Decode a batch; the inverse of ``coded_block``."""
    with pa.ipc.open_stream(block, options=_UNCOMPRESSING) as reader:
        return reader.read_next_batch()


def text_of_batches(batches: Iterable[pa.RecordBatch]) -> str:
    """Encode batches as text."""
    return base64.b64encode(coded_batches(batches)).decode()


def batches_of_text(text: str) -> list[pa.RecordBatch]:
    """Decode batches; the inverse of ``text_of_batches``."""
    return decoded_batches(base64.b64decode(text))


def conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of the input with the schema of the output.

    Spark declares columns of the input as never null where a filter before it says so,
    and all batches of a task's output must have one schema.
    """
    return pa.RecordBatch.from_arrays(batch.columns, schema=ARROW_SCHEMA)


def dests_of(batch: pa.RecordBatch) -> Int32Array:
    """Return the destination of each row, without flags."""
    dests: Int32Array = batch.column(0).to_numpy() & DEST_MASK
    return dests


def block_of(batch: pa.RecordBatch) -> RowBatch:
    """Turn a batch into lists. For a moment there are two copies of its bytes."""
    dests, routes, orders, keys, values = batch.columns
    return RowBatch(
        dests=dests.to_numpy(),
        routes=routes.to_numpy(),
        orders=orders.to_numpy(),
        keys=keys.to_numpy(zero_copy_only=False).tolist(),
        values=values.to_numpy(zero_copy_only=False).tolist(),
    )


def cut(value: bytes, limit: int) -> Iterator[bytes]:
    """Cut a long value into pieces with headers; the inverse of ``PieceJoiner``."""
    value_id = os.urandom(16)
    count = -(-len(value) // limit)
    for position in range(count):
        piece = value[position * limit : (position + 1) * limit]
        yield _PIECE_HEADER.pack(value_id, position, count) + piece


class PieceJoiner:
    """Joins the pieces of long values, in whatever order they come.

    The pieces of one value have one route, so that one task gets all of them.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, dict[int, bytes]] = {}

    def add(self, piece: bytes) -> bytes | None:
        """Return the whole value with its last piece, else None."""
        value_id, position, count = _PIECE_HEADER.unpack_from(piece)
        pieces = self._open.setdefault(value_id, {})
        pieces[position] = piece[_PIECE_HEADER.size :]
        if len(pieces) < count:
            return None
        del self._open[value_id]
        return b"".join(pieces[position] for position in range(count))

    def join_block(self, block: RowBatch) -> RowBatch:
        """Return the block without pieces: each value replaces its last piece."""
        flags = block.dests & PIECE
        if not flags.any():
            return block
        keep: list[int] = []
        for row, is_piece in enumerate(flags.tolist()):
            if is_piece:
                whole = self.add(block.values[row])
                if whole is None:
                    continue
                block.values[row] = whole
            keep.append(row)
        index = np.array(keep, np.int64)
        return RowBatch(
            dests=block.dests[index] & ~np.int32(PIECE),
            routes=block.routes[index],
            orders=block.orders[index],
            keys=[block.keys[row] for row in keep],
            values=[block.values[row] for row in keep],
        )

    def check_empty(self) -> None:
        """Check, at the end of the input, that no value lacks a piece."""
        if self._open:
            raise InvariantError(f"{len(self._open)} long value(s) arrived without all pieces")

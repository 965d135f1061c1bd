"""Base class of writers: collects rows, and splits long values into pieces."""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import routing
from beam_spark_runner.core.rendering import class_name, render_error, text_of
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.held_values import Room
from beam_spark_runner.harness.failures import is_charged

FLUSH_BYTES = 4 << 20
ROW_BYTES = 40  # overhead that counts for each row, to decide when to flush
LONG_KEY_BYTES = 1 << 16


class EncodingError(Exception):
    """An element cannot be encoded, or is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """Where a task's rows go, and which limits they obey."""

    emit: Callable[[pa.RecordBatch], None]  # takes finished batches; may block
    row_limit_bytes: int  # longer values are cut
    max_element_bytes: int  # longer elements are refused
    partitions: int  # of the next exchange; at least 1
    first: int  # where to begin if rows are spread: the number of this task
    epoch: int = 0  # of the task; 0: there are no epochs
    room: Room = field(default_factory=Room)  # for what writers hold


class Writer(abc.ABC):
    """Buffers rows of one destination. Threads: the bundle's.

    Raises (from ``accept``):
        EncodingError: the element cannot be encoded or is too long.
    """

    def __init__(self, edge: Edge, outlet: Outlet) -> None:
        self.edge = edge
        self._emit = outlet.emit
        self._row_limit_bytes = outlet.row_limit_bytes
        self._max_element_bytes = outlet.max_element_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._orders: list[int] = []
        self._size = 0

    @abc.abstractmethod
    def accept(self, windowed_value: WindowedValue) -> None:
        """Take one element."""

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Take some values; each has the timestamp, windows and pane of its origin."""
        accept = self.accept
        for value, origin in zip(values, origins, strict=True):
            accept(origin.with_value(value))

    @abc.abstractmethod
    def flush(self) -> None:
        """Emit what is buffered."""

    def _emit_rows(
        self,
        flags: int,
        routes: routing.Int64Array,
        orders: routing.Int64Array | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> None:
        dest = self.edge.dest | flags
        limit = self._row_limit_bytes
        if not values:
            return
        if max(map(len, values)) <= limit:
            self._emit(schema.batch_of(dest, routes, orders, keys, values))
            return
        short = [row for row, value in enumerate(values) if len(value) <= limit]
        if short:
            index = np.array(short, np.int64)
            self._emit(
                schema.batch_of(
                    dest,
                    routes[index],
                    None if orders is None else orders[index],
                    None if keys is None else [keys[row] for row in short],
                    [values[row] for row in short],
                )
            )
        per_batch = max(1, FLUSH_BYTES // limit)
        for row, value in enumerate(values):
            if len(value) <= limit:
                continue
            if len(value) > self._max_element_bytes:
                raise EncodingError(
                    f"an element of {len(value)} bytes exceeds the limit of "
                    f"{self._max_element_bytes} bytes for elements that are sent to "
                    f"{self.edge.name}"
                )
            pieces: list[bytes] = []
            for piece in schema.cut(value, limit):
                pieces.append(piece)
                if len(pieces) == per_batch:
                    self._emit_pieces(dest, routes, orders, keys, row, pieces)
                    pieces = []
            if pieces:
                self._emit_pieces(dest, routes, orders, keys, row, pieces)

    def _emit_pieces(
        self,
        dest: int,
        routes: routing.Int64Array,
        orders: routing.Int64Array | None,
        keys: Sequence[bytes] | None,
        row: int,
        pieces: list[bytes],
    ) -> None:
        count = len(pieces)
        self._emit(
            schema.batch_of(
                dest | schema.PIECE,
                np.full(count, routes[row]),
                None if orders is None else np.full(count, orders[row]),
                None if keys is None else [keys[row]] * count,
                pieces,
            )
        )

    def _encoding_error(self, part: str, value: Any, error: Exception) -> EncodingError:
        if is_charged(error):  # another thread has interrupted the task
            raise error
        cause = render_error(error).cause
        return EncodingError(
            f"the output of this step cannot be encoded: the {part} of an element for "
            f"{self.edge.name}: {class_name(value)} {text_of(value, 200)}: {cause}"
        )

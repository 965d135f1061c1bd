"""Rows that a task's report brings to the driver: those of small side inputs.

The driver then needs no other Spark job to get them. The rows are among those of the task,
too: whether they are few is known only after all tasks have ended.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema


class ReturnedRows:
    """The rows of some destinations among those that a task emits, unless they are many.

    Args:
        dests: the destinations.
        limit_bytes: if their rows exceed this size, the report brings none of them.
    """

    def __init__(self, dests: Iterable[int], limit_bytes: int) -> None:
        self._dests = np.array(sorted(dests), np.int32)
        self._left_bytes = limit_bytes
        self._rows: list[pa.RecordBatch] | None = [] if len(self._dests) else None

    def add_from(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the destinations among those of a batch."""
        if self._rows is None:
            return
        is_wanted = np.isin(schema.dests_of(batch), self._dests)
        if not is_wanted.any():
            return
        rows = batch if is_wanted.all() else batch.filter(pa.array(is_wanted))
        self._left_bytes -= rows.nbytes
        if self._left_bytes < 0:
            self._rows = None
        else:
            self._rows.append(schema.conformed(rows))

    def coded(self) -> bytes | None:
        """Return the rows, for ``decoded_batches``; None: they are too many, or none are wanted."""
        if self._rows is None:
            return None
        return schema.coded_batches(self._rows)

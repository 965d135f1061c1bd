"""Collects the panes of a side input that fire in a task, and writes them to files."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.side_input_writer import SideInputWriter
from beam_spark_runner.engine.rows.writing import EncodingError, Outlet
from beam_spark_runner.engine.side_inputs.files import EPOCHS_SCHEMA, SortedWriter
from beam_spark_runner.portable.wire import window_namer
from beam_spark_runner.state.stored_deltas import ShardStorageError

FILE_CODE = routing.FIRST_CODE
"""The code in routes of files with panes: that of an edge may differ in a later run."""
_PANES_SCHEMA = EPOCHS_SCHEMA.append(pa.field("pane", pa.int64()))
_ROW_BYTES = 2 << 20
_MEMORY_BYTES = 16 << 20
_AT_ONCE = 1_000


class PaneId(NamedTuple):
    """A window, or a part of it, whose content is its latest pane.

    Attributes:
        window: as SDKs name it, see ``portable.wire.window_namer``.
        part: the part of the side input, see ``rows.view_rows``.
    """

    window: bytes
    part: bytes


class PanesOfView:
    """Takes the panes of a side input that fire in a task. See ``BundleInput``.

    A pane replaces the previous one of its window. Panes may be larger than memory.

    Args:
        edge: the edge of the side input.
        coder: the coder of the elements.
        max_element_bytes: the most bytes of an element; a longer one is refused.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, *, max_element_bytes: int) -> None:
        self._name_window = window_namer(coder.window_coder)
        self._last: dict[PaneId, tuple[int, int]] = {}  # number of the pane, end of its window
        self._count = 0
        self._spooled = _SpooledRows()
        coded_as = dataclasses.replace(edge, code=FILE_CODE)
        self._rows = _RowsOfPanes(coded_as, coder, self._spooled.add, max_element_bytes)

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Take panes: pairs of a part and its values, each with the epoch in which it has come."""
        for (part, pane), origin in zip(values, origins, strict=True):
            (window,) = origin.windows
            pane_id = PaneId(self._name_window(window), part)
            self._last[pane_id] = self._count, window.max_timestamp().micros
            for epoch, pairs in groupby(pane, itemgetter(0)):
                self._rows.begin_pane(self._count, epoch)
                while chunk := [value for _, value in islice(pairs, _AT_ONCE)]:
                    self._rows.accept_chunk(chunk, [origin] * len(chunk))
            self._rows.end_pane()
            self._count += 1

    def flush(self) -> None:
        """See ``BundleInput.flush``: nothing is buffered."""

    def close(self) -> None:
        """Release all panes."""
        self._spooled.close()

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: there are no timers or state."""

    def last_panes(self) -> Sequence[tuple[PaneId, int]]:
        """Return the ids of new panes, each with the last moment of its window."""
        return [(pane_id, end_us) for pane_id, (_, end_us) in self._last.items()]

    def write(self, part: bytes, name: str, scratch: Path, store: Callable[[Path], None]) -> None:
        """Write the last pane of each window in a part to a file. Nothing is pushed afterwards.

        Args:
            part: the part. Its later panes replace what is in this file, and in no other one.
            name: the name under which ``store`` stores the file.
            scratch: a folder for the file, until ``store`` has stored it.
            store: stores the file, which is then removed.

        Raises:
            ShardStorageError: the file cannot be written.
        """
        self._rows.flush()
        last = np.zeros(self._count, np.bool_)
        last[[number for pane_id, (number, _) in self._last.items() if pane_id.part == part]] = True
        with (
            _on_disk(str(scratch)),
            tempfile.TemporaryDirectory(prefix="view-", dir=scratch) as folder,
        ):
            path = Path(folder, "view")
            writer = SortedWriter(str(path), is_sorted=False, name=name)
            for batch in self._spooled.batches():
                panes = batch.column(len(EPOCHS_SCHEMA)).to_numpy()
                rows = batch.select(EPOCHS_SCHEMA.names)
                writer.add(rows if last[panes].all() else rows.filter(pa.array(last[panes])))
            writer.close()
            store(path)


@contextlib.contextmanager
def _on_disk(place: str) -> Iterator[None]:
    """Convert errors of a file system to ShardStorageErrors. ``place``: if they name no file."""
    try:
        yield
    except OSError as error:
        raise ShardStorageError(str(error.filename or place), str(error)) from error


class _RowsOfPanes(SideInputWriter):
    """Makes rows of ``_PANES_SCHEMA``; each is of one pane and epoch."""

    def __init__(
        self,
        edge: Edge,
        coder: WindowedValueCoder,
        take: Callable[[pa.RecordBatch], None],
        max_element_bytes: int,
    ) -> None:
        outlet = Outlet(
            emit=take,
            row_limit_bytes=_ROW_BYTES,
            max_element_bytes=max_element_bytes,
            partitions=1,
            first=0,
        )
        super().__init__(edge, coder, outlet)
        self._pane = (0, 0)  # epoch and pane
        self._panes: list[tuple[int, int]] = []  # of the first rows; the others are of ``_pane``

    def begin_pane(self, pane: int, epoch: int) -> None:
        """Assign the next values to a pane and an epoch."""
        self.end_pane()
        self._pane = epoch, pane

    def end_pane(self) -> None:
        """Make rows of the values so far: the next ones are of another pane or epoch."""
        self._end_runs()
        self._panes += [self._pane] * (len(self._keys) - len(self._panes))

    @override
    def _emit_rows(
        self,
        flags: int,
        routes: routing.Int64Array,
        orders: routing.Int64Array | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> None:
        if not values:
            return
        ofs = np.array(self._panes + [self._pane] * (len(values) - len(self._panes)), np.int64)
        self._panes = []
        longest = max(map(len, values))
        if longest > self._max_element_bytes:
            raise EncodingError(
                f"an element of {longest} bytes exceeds the limit of {self._max_element_bytes} "
                f"bytes for elements that are sent to {self.edge.name}"
            )
        columns = [
            pa.array(routes),
            pa.array(orders),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(ofs[:, 0]),
            pa.array(ofs[:, 1]),
        ]
        self._emit(pa.RecordBatch.from_arrays(columns, schema=_PANES_SCHEMA))


class _SpooledRows:
    """Rows of panes, in memory as long as they are few."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115  (closed by ``close``)
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            ShardStorageError: the disk with temporary files does not work.
        """
        with _on_disk(tempfile.gettempdir()):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._file, _PANES_SCHEMA)
            self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows. No more are added."""
        if self._writer is None:
            return
        self._writer.close()  # may be called again
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            yield from reader

    def close(self) -> None:
        """Release the rows."""
        self._file.close()

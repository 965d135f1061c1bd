"""Side inputs of streaming pipelines: the last pane of each window, in a file of an epoch."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.spark.program import Edge, SideInputRows
from beam_spark_runner.spark.rows.marks import MarkReader
from beam_spark_runner.spark.rows.side_input_writer import SideInputWriter
from beam_spark_runner.spark.rows.writing import Outlet
from beam_spark_runner.spark.shared_file import SharedFile
from beam_spark_runner.spark.side_inputs.files import SortedWriter, whole_rows
from beam_spark_runner.spark.side_inputs.lookup import GatheredRows
from beam_spark_runner.state.stored_deltas import ShardStorageError


class EpochView:
    """What one side input has in an epoch. See ``SideInputLookup``.

    Args:
        edge: of the side input.
        job_id: of the pipeline's run.
        files: by encoded window: the path of the file with its content.
        open_file: opens a file, or gives the one that is open.

    Attributes:
        kept_as: under which the operations of an embedded stage may keep the view beyond a
            bundle; empty if they do not: Beam keeps those in the global window.
    """

    def __init__(
        self,
        edge: Edge,
        job_id: str,
        files: Mapping[bytes, str],
        open_file: Callable[[SideInputRows], GatheredRows],
    ) -> None:
        version = hashlib.blake2b(repr(sorted(files.items())).encode(), digest_size=8).hexdigest()
        self.id = f"{job_id}/{edge.dest}/{version}"
        self.kept_as = self.id if edge.is_global else ""
        self._code = edge.code
        self._files = files
        self._open = open_file

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        """See ``SideInputLookup.values``. A window without content is empty.

        Raises:
            ShardStorageError: the file cannot be read.
        """
        path = self._files.get(window)
        if path is None:
            return iter(())
        source = SideInputRows(id=path, code=self._code, files=(SharedFile(path=path),))
        try:
            rows = self._open(source)
        except OSError as error:
            raise ShardStorageError(path, str(error)) from error
        return rows.values(window, key)


class PanesOfView:
    """Takes the panes of a side input that fire in a task. See ``BundleInput``.

    A pane replaces the one before it.

    Args:
        coder: of the elements.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._coder = coder
        self._encode_window = coder.window_coder.get_impl().encode
        self._panes: dict[bytes, tuple[WindowedValue, list[Any]]] = {}

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Take panes: pairs of a key, which has no meaning, and all values of a pane."""
        for (_, pane), origin in zip(values, origins, strict=True):
            (window,) = origin.windows
            self._panes[self._encode_window(window)] = origin, list(pane)

    def flush(self) -> None:
        """See ``BundleInput.flush``: nothing waits."""

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: there are no keys."""

    def windows(self) -> Sequence[tuple[bytes, int]]:
        """Return the windows that have a new pane: encoded, and their last moment."""
        return [
            (coded, origin.windows[0].max_timestamp().micros)
            for coded, (origin, _) in self._panes.items()
        ]

    def write(self, edge: Edge, put: Callable[[Path], None], *, most_element_bytes: int) -> None:
        """Write all panes to a file.

        Args:
            edge: of the side input.
            put: takes the file, which is then removed.
            most_element_bytes: see ``Outlet``.

        Raises:
            ShardStorageError: the file cannot be written.
        """
        batches: list[pa.RecordBatch] = []
        outlet = Outlet(
            emit=batches.append,
            row_limit_bytes=most_element_bytes,
            max_element_bytes=most_element_bytes,
            partitions=1,
            first=0,
        )
        writer = SideInputWriter(edge, self._coder, outlet)
        for origin, values in self._panes.values():
            writer.accept_chunk(values, [origin] * len(values))
        writer.flush()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "view")
            sorted_writer = SortedWriter(str(path), is_sorted=False)
            for _, batch in whole_rows(iter(batches), MarkReader()):
                sorted_writer.add(batch)
            sorted_writer.close()
            try:
                put(path)
            except OSError as error:
                raise ShardStorageError(str(error.filename), str(error)) from error

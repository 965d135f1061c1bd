"""Stores the rows of an epoch for a table, which the driver writes once the epoch is committed."""

import contextlib
import tempfile
import uuid
from pathlib import Path
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.engine.epoch_files import folder_of_epochs, scratch_folder
from beam_spark_runner.engine.rows.table_rows import count_rows
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.operator import WithoutBundle
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.recovery.sweep import table_rows_name
from beam_spark_runner.state.checked_blocks import BlockWriter
from beam_spark_runner.state.stored_deltas import ShardStorageError


class TableRowsWriter(WithoutBundle):
    """Writes Arrow batches into a file of the checkpoint, one block for each.

    Args:
        context: the stage.
    """

    input: "TableRowsFile"

    def __init__(self, context: StageContext[StagesOfEpoch]) -> None:
        super().__init__()
        self._places, self._dest = context.level.shards, context.program.input.dest
        self._name = table_rows_name(
            self._places.lineage, context.task.epoch.number, int(self._dest), uuid.uuid4().hex
        )
        self.input = TableRowsFile(self._name, scratch_folder(self._places))

    @override
    def store(self, outcome: Outcome) -> None:
        path = self.input.finish()
        if path is not None:
            folder_of_epochs(self._places).put(self._name, path)
            outcome.table_rows = [
                reports_pb2.TableRows(dest=self._dest, file=self._name, rows=self.input.count)
            ]


class TableRowsFile:
    """Writes each element as a block of a temporary file. See ``BundleInput``.

    Args:
        name: the name by which readers will know the file.
        scratch: the folder of the temporary file.

    Attributes:
        count: how many rows there are.
    """

    def __init__(self, name: str, scratch: Path) -> None:
        self.count = 0
        self._name, self._scratch = name, scratch
        self._path: Path | None = None
        self._opened = contextlib.ExitStack()

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Write Arrow streams.

        Raises:
            ShardStorageError: the disk with temporary files does not work.
        """
        try:
            if self._path is None:
                folder = tempfile.TemporaryDirectory(prefix="table-", dir=self._scratch)
                self._path = Path(self._opened.enter_context(folder), "rows")
                sink = self._opened.enter_context(self._path.open("wb"))
                self._sink, self._writer = sink, BlockWriter(sink, self._name)
            for value in values:
                self._writer.add(value)
                self.count += count_rows(value)
        except OSError as error:
            raise self._error(error) from error

    def flush(self) -> None:
        """See ``BundleInput.flush``: nothing is buffered."""

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: there are no timers or state."""

    def finish(self) -> Path | None:
        """Return the file, which is complete. None: there are no rows.

        Raises:
            ShardStorageError: the disk with temporary files does not work.
        """
        if self._path is not None:
            try:
                self._writer.finish()
                self._sink.close()
            except OSError as error:
                raise self._error(error) from error
        return self._path

    def close(self) -> None:
        """Delete the file."""
        self._opened.close()

    def _error(self, error: OSError) -> CheckpointStorageError:
        return ShardStorageError(str(error.filename or self._scratch), str(error))

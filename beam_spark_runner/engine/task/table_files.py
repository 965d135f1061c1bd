"""Reads the rows for a table that the tasks of an epoch have stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from beam_spark_runner.core.errors import OutputStorageError
from beam_spark_runner.engine.epoch_files import folder_of_epochs
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.rows.table_rows import conformed
from beam_spark_runner.state.checked_blocks import reader_of

_ROWS_OF_FILE = 1 << 40  # no file has as many


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where files with rows are, and what table they are for.

    Attributes:
        places: where the files are.
        table_schema: the columns of the table. Values that do not fit raise ValueError.
    """

    places: ShardLocations
    table_schema: pa.Schema

    def read(self, names: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files.

        Args:
            names: the names of the files.

        Raises:
            DamagedFileError: a file is damaged.
            OutputStorageError: a file is missing, or the folder does not answer.
        """
        folder = folder_of_epochs(self.places)
        for name in names:
            try:
                with folder.local(name) as path, open(path, "rb") as file:
                    for block in reader_of(file, name).contents():
                        with pa.ipc.open_stream(pa.py_buffer(block)) as reader:
                            for batch in reader:
                                yield conformed(batch, self.table_schema)
            except OSError as error:
                raise OutputStorageError(f"{self.places.deltas}/{name}", str(error)) from error

    def read_numbered(self, name: str, number: int, column_name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, with one more column: the number of a row in all files.

        Args:
            name: the name of the file.
            number: its own number.
            column_name: the name of the column.

        Raises:
            DamagedFileError: the file is damaged.
            OutputStorageError: the file is missing, or the folder does not answer.
        """
        at = number * _ROWS_OF_FILE
        numbered = self.table_schema.append(pa.field(column_name, pa.int64()))
        for batch in self.read([name]):
            numbers = pa.array(range(at, at + batch.num_rows), pa.int64())
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=numbered)
            at += batch.num_rows

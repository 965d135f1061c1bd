"""The output of tasks of a bounded pipeline in files, which later starts of its driver can read.

A task writes its rows and mark to a file, and then creates its finish record. Both have names that
no other attempt has: attempts never touch each other's files, and only files that a manifest or a
finish record names are read.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.core.errors import LostRowsError, OutputStorageError
from beam_spark_runner.engine.program import LevelProgram, OutputPlace
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.stored_rows import RowFile
from beam_spark_runner.recovery.finishes import Finish, encode_record
from beam_spark_runner.state.checked_blocks import DamagedFileError, reader_of
from beam_spark_runner.storage.folder import Settings
from beam_spark_runner.storage.folder_at import folder_at


class StoredOutput:
    """The output of one attempt at a task.

    Args:
        place: where it is stored.
        partition: the partition of the task.
        attempt: the id of the attempt.
    """

    def __init__(self, place: OutputPlace, partition: int, attempt: int) -> None:
        self._place = place
        self._finish = Finish(partition, place.tasks, attempt)
        self._folder = folder_at(place.folder, place.store)

    @contextlib.contextmanager
    def rows(self) -> Iterator[RowFile | None]:
        """Yield the file for the rows, which is stored when the context ends. None: there is none.

        Raises:
            OutputStorageError: the folder is missing, full, or does not answer.
        """
        if not self._place.has_rows:
            yield None
            return
        name = self._finish.rows_name
        with (
            self._storing(name),
            self._folder.new_file(name) as path,
            RowFile(Path(path), lambda: None, name, OutputStorageError) as file,
        ):
            yield file

    def finish(self, report: reports_pb2.TaskReport) -> None:
        """Make the rows durable, and create the finish record.

        Raises:
            OutputStorageError: the folder is full, or does not answer.
        """
        name = self._finish.record_name
        rows = [self._finish.rows_name] if self._place.has_rows else []
        with self._storing(name):
            self._folder.create(name, encode_record(report.SerializeToString()), after=rows)

    @contextlib.contextmanager
    def _storing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputStorageError(f"{self._place.folder}/{name}", str(error)) from error


@dataclass(frozen=True, slots=True)
class OutputFile:
    """The rows of one task.

    Attributes:
        run: the number of its Spark job.
        folder: the folder of that Spark job.
        name: the name of the file.
        dests: the destinations whose rows are read, with the marks. None: all.
    """

    run: int
    folder: str
    name: str
    dests: frozenset[int] | None = None

    def rows_for(self, dests: Iterable[int]) -> "OutputFile":
        """Return the rows of some destinations, with the marks."""
        chosen = frozenset(map(int, dests))
        return replace(self, dests=chosen if self.dests is None else chosen & self.dests)

    def read(self, store: Settings = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Args:
            store: see ``OutputPlace``.

        Raises:
            LostRowsError: the file is missing or damaged.
            OutputStorageError: the folder does not answer.
        """
        place = f"{self.folder}/{self.name}"
        dests = None
        if self.dests is not None:
            dests = np.array([schema.CONTROL, *sorted(self.dests)], np.int32)
        try:
            with folder_at(self.folder, store).local(self.name) as path, open(path, "rb") as file:
                for block in reader_of(file, self.name).contents():
                    batch = schema.decoded_block(block)
                    yield batch if dests is None else schema.rows_to(dests, batch)
        except FileNotFoundError as error:
            raise LostRowsError(self.run, f"{place} is missing") from error
        except DamagedFileError as error:
            raise LostRowsError(self.run, f"{place} is damaged: {error.why}") from error
        except OSError as error:
            raise OutputStorageError(place, str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputReading:
    """Which stored rows the tasks of a Spark job read: each task those of one file.

    Attributes:
        files: the files, one for each task.
        store: see ``OutputPlace``.
        skipped_files: the numbers of files that no task needs.
        skipped_partitions: the partitions after the next exchange that need no rows.
        partitions: the number of partitions after the next exchange, if some are skipped.
    """

    files: tuple[OutputFile, ...]
    store: Settings = field(default=(), repr=False)
    skipped_files: frozenset[int] = frozenset()
    skipped_partitions: frozenset[int] = frozenset()
    partitions: int = 1

    def for_level(self, program: LevelProgram, *, exchanges: bool) -> "OutputReading":
        """Return what the tasks of a level need, some of which may have finished.

        Args:
            program: the program of the level.
            exchanges: whether an exchange brings the rows to its tasks.
        """
        if exchanges:
            return replace(self, skipped_partitions=program.finished, partitions=program.partitions)
        return replace(self, skipped_files=program.finished)

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file that are needed.

        Args:
            number: the number of the file.

        Raises:
            LostRowsError, OutputStorageError: see ``OutputFile.read``.
        """
        if number not in self.skipped_files:
            yield from map(self._needed_rows, self.files[number].read(self.store))

    def _needed_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.skipped_partitions:
            return batch
        routes = batch.column("route").to_numpy()
        partitions = routing.partitions_of_routes(routes, self.partitions)
        is_needed = ~np.isin(partitions, list(self.skipped_partitions))
        is_mark = schema.dests_of(batch) == schema.CONTROL  # it goes to all partitions
        return batch.filter(pa.array(is_needed | is_mark))

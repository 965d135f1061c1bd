"""A file that executors can read, by the mechanism that this kind of Spark offers."""

import mmap
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
from pyspark import SparkFiles

from beam_spark_runner.spark.broadcast import contents_of, map_file


class Downloadable(Protocol):
    """An object of a store that all executors reach."""

    def downloaded(self) -> AbstractContextManager[str]:
        """Return the path of a local copy, which is removed afterwards. Maps of it stay valid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """Where executors find a file. One of the four is set.

    Attributes:
        path: its path on storage that is mounted on all of them.
        stored: an object of a store that all of them reach.
        broadcast: see ``spark.broadcast``.
        artifact: its name among the artifacts that Spark Connect has sent to them.
    """

    path: str | None = None
    stored: Downloadable | None = None
    broadcast: Any = None
    artifact: str | None = None

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """Return its bytes, on an executor, and their map. None: they are in memory."""
        if self.broadcast is not None:
            return contents_of(self.broadcast)
        if self.stored is not None:
            with self.stored.downloaded() as local:
                mapped = map_file(local)  # stays when the file has no name any more
        else:
            mapped = map_file(self._local_path())
        return pa.py_buffer(mapped), mapped

    def open(self) -> BinaryIO:
        """Open it, on an executor. With ``spark.io.encryption.enabled`` it is in memory."""
        if self.stored is not None:
            with self.stored.downloaded() as local:
                return Path(local).open("rb")
        if self.broadcast is None:
            return Path(self._local_path()).open("rb")
        buffer, _ = contents_of(self.broadcast)  # the buffer keeps its map
        return cast(BinaryIO, pa.BufferReader(buffer))

    def _local_path(self) -> str:
        return self.path or SparkFiles.get(self.artifact or "")

"""Files that Spark has sent to its executors: see ``engine.shared_file``."""

import mmap
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyspark import SparkFiles

from beam_spark_runner.engine.shared_file import MountedFile
from beam_spark_runner.spark.broadcast import contents_of


@dataclass(frozen=True, slots=True)
class BroadcastFile:
    """See ``SharedFile``. ``broadcast``: see ``spark.broadcast``."""

    broadcast: Any

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """See ``SharedFile``."""
        return contents_of(self.broadcast)

    def open(self) -> BinaryIO:
        """See ``SharedFile``. With ``spark.io.encryption.enabled`` it is in memory."""
        buffer, _ = contents_of(self.broadcast)  # the buffer keeps its map
        return cast(BinaryIO, pa.BufferReader(buffer))


@dataclass(frozen=True, slots=True)
class SessionFile:
    """See ``SharedFile``. ``name``: its name among the artifacts of a Spark Connect session."""

    name: str

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """See ``SharedFile``."""
        return self._file().map()

    def open(self) -> BinaryIO:
        """See ``SharedFile``."""
        return self._file().open()

    def _file(self) -> MountedFile:
        return MountedFile(SparkFiles.get(self.name))

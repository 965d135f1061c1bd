"""A file that executors can read, by the mechanism that this kind of Spark offers."""

import mmap
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyspark import SparkFiles

from beam_spark_runner.spark.broadcast import contents_of, map_file


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """Where executors find a file. One of the three is set.

    Attributes:
        path: on storage that all of them see.
        broadcast: see ``spark.broadcast``.
        artifact: its name among those that Spark Connect handed to them.
    """

    path: str | None = None
    broadcast: Any = None
    artifact: str | None = None

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """Return its bytes, on an executor, and their map. None: they are in memory."""
        if self.broadcast is not None:
            return contents_of(self.broadcast)
        mapped = map_file(self._local_path())
        return pa.py_buffer(mapped), mapped

    def open(self) -> BinaryIO:
        """Open it, on an executor. With ``spark.io.encryption.enabled`` it is in memory."""
        if self.broadcast is None:
            return Path(self._local_path()).open("rb")
        buffer, _ = contents_of(self.broadcast)  # the buffer keeps its map
        return cast(BinaryIO, pa.BufferReader(buffer))

    def _local_path(self) -> str:
        return self.path or SparkFiles.get(self.artifact or "")


def share_file(
    source: Path, folder: str | None, share: Callable[[Path], tuple[Any, str | None]]
) -> SharedFile:
    """Give a file to all executors, for as long as the job runs. ``source`` may then go.

    Args:
        source: its name is unique in the session.
        folder: that all of them see, if there is one.
        share: see ``SessionHandle.share``.
    """
    if folder is not None:
        return SharedFile(path=shutil.copy(source, folder))
    broadcast, artifact = share(source)
    return SharedFile(broadcast=broadcast, artifact=artifact)

"""Sends a file to all executors of a classic Spark, as Spark sends broadcast variables.

Spark stores a broadcast value of Python as a pickle in a file, on the driver and
once on each executor. A file that is copied into such a pickle is never in this
process's memory, and Python workers map their executor's copy into theirs.
"""

import mmap
import shutil
import struct
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark import Broadcast, SparkContext
from typing_extensions import override

from beam_spark_runner.engine.shared_file import map_file
from beam_spark_runner.spark import pyspark_internals

PICKLE_START = b"\x80\x04" + b"K\x000" + b"N0" * 25 + b"\x8e"
"""The start of a pickled byte string, up to its length: 64 bytes with it, so that Arrow's buffers
are aligned. The padding is values that are pushed and popped again."""
PICKLE_END = b"."
_PICKLE_LENGTH = struct.Struct("<Q")
PICKLE_HEADER_BYTES = len(PICKLE_START) + _PICKLE_LENGTH.size


def pickle_header(size: int) -> bytes:
    """Return the bytes that, before a file's ``size`` bytes and PICKLE_END, make a pickle."""
    return PICKLE_START + _PICKLE_LENGTH.pack(size)


class FileBroadcast(Broadcast[Path]):
    """Broadcast variable of a file's bytes. Workers know it as a plain ``Broadcast``."""

    @override
    def dump(self, value: Path, f: BinaryIO) -> None:
        """Write the file as a pickled byte string."""
        with value.open("rb") as file:
            f.write(pickle_header(value.stat().st_size))
            shutil.copyfileobj(file, f, 1 << 20)
            f.write(PICKLE_END)
        f.close()


def broadcast_file(context: SparkContext, path: Path) -> FileBroadcast:
    """Send a file to the executors, where ``contents_of`` returns its bytes."""
    return FileBroadcast(context, path, pyspark_internals.broadcasts_of_next_closure(context))


def contents_of(broadcast: Any) -> tuple[pa.Buffer, mmap.mmap | None]:
    """Return the bytes on a worker, and their map. None: they are in memory.

    With ``spark.io.encryption.enabled`` there is no file that could be mapped.
    """
    path = pyspark_internals.path_of_broadcast(broadcast)
    if path is None:
        return pa.py_buffer(broadcast.value), None
    mapped = map_file(path)
    return pa.py_buffer(mapped)[PICKLE_HEADER_BYTES : -len(PICKLE_END)], mapped

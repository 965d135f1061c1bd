"""Files that Spark sends to executors as values of Python."""

import io
import pickle
from pathlib import Path

from beam_spark_runner.spark.broadcast import (
    PICKLE_HEADER_BYTES,
    FileBroadcast,
    contents_of,
    pickle_header,
)


def test_a_broadcast_file_is_mapped_without_being_unpickled(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    (tmp_path / "data").write_bytes(data)
    pickled = io.FileIO(tmp_path / "pickled", "wb")
    FileBroadcast.dump(FileBroadcast(path=""), tmp_path / "data", pickled)
    # Where Spark hands the bytes over by a socket, it unpickles them.
    assert pickle.loads((tmp_path / "pickled").read_bytes()) == data
    buffer, mapped = contents_of(FileBroadcast(path=str(tmp_path / "pickled")))
    assert buffer.to_pybytes() == data
    assert mapped is not None
    assert (PICKLE_HEADER_BYTES % 64, len(pickle_header(5))) == (0, 64)

"""Gathered side inputs on the worker: loaded once, looked up by window and key."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles

from beam_spark_runner.spark.keys import join_key
from beam_spark_runner.spark.program import SideInputRows


class GatheredRows:
    """All rows of one side input, in memory, shared by the stages of this worker."""

    def __init__(self, source: SideInputRows) -> None:
        self._values: dict[bytes, list[bytes]] = {}
        with pa.ipc.open_stream(_stream(source)) as reader:
            for batch in reader:
                keys = batch.column(0).to_numpy(zero_copy_only=False).tolist()
                values = batch.column(1).to_numpy(zero_copy_only=False).tolist()
                for key, value in zip(keys, values, strict=True):
                    self._values.setdefault(key, []).append(value)

    def values(self, window: bytes, key: bytes | None) -> Sequence[bytes]:
        """See ``SideInputLookup.values``."""
        return self._values.get(join_key(key or b"", window), ())


def _stream(source: SideInputRows) -> Any:
    if source.path is not None:
        return pa.memory_map(source.path)
    if source.artifact is not None:
        return pa.memory_map(SparkFiles.get(source.artifact))
    return source.inline if source.broadcast is None else source.broadcast.value


_loaded: dict[str, GatheredRows] = {}


def lookup_for(source: SideInputRows) -> GatheredRows:
    """Return the rows, kept from an earlier task of this worker where there was one.

    Ids begin with the job's: rows of other jobs are dropped.
    """
    job = source.id.partition("/")[0]
    for id_ in [id_ for id_ in _loaded if id_.partition("/")[0] != job]:
        del _loaded[id_]
    if source.id not in _loaded:
        _loaded[source.id] = GatheredRows(source)
    return _loaded[source.id]

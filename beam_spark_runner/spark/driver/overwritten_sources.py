"""Refuses to overwrite what the same pipeline reads, if a failure would lose it.

Spark deletes files and tables without versions before it writes them again. If executors are lost
in between, the rows that were read are gone along with their source. Spark itself refuses it where
one DataFrame reads and writes.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.table_steps import TableRead, database_of
from beam_spark_runner.spark.driver.table_frames import OpenRead
from beam_spark_runner.spark.driver.table_writes import OpenWrite


def check_overwrites(reads: Iterable[OpenRead], writes: Iterable[OpenWrite]) -> list[TableError]:
    """Return an error for each write that would delete the source of a read."""
    reads = list(reads)
    if not reads:
        return []
    errors = []
    for write in writes:
        if not (write.write.mode == "overwrite" and write.is_there) or write.keeps_versions():
            continue
        for read in _reads_of(write, reads):
            problem = (
                f"it would overwrite {write.write}, which {read.step} reads: if executors were "
                "lost while Spark replaces it, its rows would be lost. Write to another place, "
                "or keep the table in a format with versions, such as Delta or Iceberg"
            )
            errors.append(TableError(problem, write.step))
            break
    return errors


def changed_sources(
    reads: Mapping[TransformId, OpenRead], begun: Iterable[OpenWrite]
) -> Mapping[TransformId, TableError]:
    """Return an error for each read of a target that an earlier start has begun to write.

    The rows that this start would read are others than those that the pipeline has begun with.
    """
    errors = {}
    for write in begun:
        for read in _reads_of(write, reads.values()):
            problem = (
                f"it reads {read.read} again, since rows were lost or a step that reads it has not "
                f"run; but an earlier start has begun to write it ({write.step}), so that it may "
                "have other rows now. Begin again, with an empty --checkpoint_dir, or as another "
                "job of a job server"
            )
            (step,) = (id_ for id_, open_read in reads.items() if open_read is read)
            errors[step] = TableError(problem, read.step)
    return errors


def _reads_of(write: OpenWrite, reads: Iterable[OpenRead]) -> Iterator[OpenRead]:
    """Yield the reads of what a write writes."""
    files = None
    for read in reads:
        if files is None:
            files = set(write.files())
        if _is_same(read.read, write) or not files.isdisjoint(_files_of(read)):
            yield read


def _is_same(read: TableRead, write: OpenWrite) -> bool:
    if read.table and read.table.lower() == write.write.table.lower():
        return True
    theirs, ours = database_of(read.options), database_of(write.write.options)
    return all(ours) and theirs == ours


def _files_of(read: OpenRead) -> list[str]:
    with contextlib.suppress(Exception):  # a source that does not list its files
        return list(read.frame.inputFiles())
    return []

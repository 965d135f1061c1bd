"""Reads deltas from their storage, and merges older ones into a newer one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.state.chain import Chain, Version
from beam_spark_runner.state.delta import CorruptDeltaError, DeltaWriter, read_changes

NameOf: TypeAlias = Callable[[Version], str]
"""Names the delta of a version."""

OpenFile: TypeAlias = Callable[[str], BinaryIO]
"""Opens a delta by its name; raises ``FileNotFoundError`` if there is none."""


class ShardStorageError(CheckpointStorageError):
    """A disk or storage that a shard needs is full, unavailable, or broken."""

    def __str__(self) -> str:
        return f"the data of a shard cannot be read or written at {self.place}: {self.problem}"


@contextmanager
def reading(open_file: OpenFile, name: str) -> Iterator[BinaryIO]:
    """Open a delta that must be there.

    Raises:
        CorruptDeltaError: it is not.
        ShardStorageError: the storage cannot be read.
    """
    try:
        with open_file(name) as stream:
            yield stream
    except FileNotFoundError as error:
        raise CorruptDeltaError(name, "there is no such file") from error
    except OSError as error:
        raise ShardStorageError(name, str(error)) from error


def merge_deltas(
    merged: Chain,
    writer: DeltaWriter,
    get: Callable[[bytes], bytes | None],
    open_file: OpenFile,
    name_of: NameOf,
) -> None:
    """Add those records of older deltas to a newer one that still hold.

    The others were changed since, by one of these deltas or by the newer one, which says so.

    Args:
        merged: the older deltas. Their keys are in memory meanwhile.
        writer: of the newer one.
        get: returns what a key has with the newer one; None: nothing.
        open_file: by the name of a delta.
        name_of: the shard's versions.

    Raises:
        CorruptDeltaError: an older delta is damaged or missing.
        ShardStorageError: the storage of the deltas cannot be read.
        OSError: the newer one cannot be written.
    """
    added = set[bytes]()
    for version, _, _ in merged:
        name = name_of(version)
        with reading(open_file, name) as stream:
            for key, value in read_changes(stream, name, version):
                if key in added or get(key) != value:
                    continue
                added.add(key)
                if value is None:
                    writer.delete(key)
                else:
                    writer.put(key, value)

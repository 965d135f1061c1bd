"""Reads deltas from their storage, and merges older ones into a newer one."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, TypeAlias

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.state.chain import Chain, ShardVersion
from beam_spark_runner.state.delta import CorruptDeltaError, DeltaWriter, read_changes

NameOf: TypeAlias = Callable[[ShardVersion], str]
"""Returns the name of the delta of a version."""

OpenFile: TypeAlias = Callable[[str], BinaryIO]
"""Opens a delta by its name; raises ``FileNotFoundError`` if there is none."""


class ShardStorageError(CheckpointStorageError):
    """A disk or storage that a shard needs is full, unavailable, or broken."""

    @override
    def __str__(self) -> str:
        return f"the data of a shard cannot be read or written at {self.place}: {self.problem}"


@contextmanager
def reading(open_file: OpenFile, name: str) -> Iterator[BinaryIO]:
    """Open a delta that must exist, for a ``with`` block that reads it.

    Raises:
        CorruptDeltaError: The delta does not exist.
        ShardStorageError: The storage cannot be read.
    """
    try:
        with open_file(name) as stream:
            yield stream
    except FileNotFoundError as error:
        raise CorruptDeltaError(name, "there is no such file") from error
    except OSError as error:
        raise ShardStorageError(name, str(error)) from error


@contextmanager
def changes_of(
    open_file: OpenFile, name: str, version: ShardVersion
) -> Iterator[Iterator[tuple[bytes, bytes | None]]]:
    """Open a delta that must exist, for a ``with`` block that iterates over its changes.

    Errors of the block are not those of the delta: they leave it as they are.

    Raises:
        CorruptDeltaError: The delta does not exist, or is damaged.
        ShardStorageError: The storage cannot be read.
    """

    def read() -> Generator[tuple[bytes, bytes | None]]:
        with reading(open_file, name) as stream:
            yield from read_changes(stream, name, version)

    with closing(read()) as changes:
        yield changes


def merge_deltas(
    deltas: Chain,
    writer: DeltaWriter,
    get: Callable[[bytes], bytes | None],
    open_file: OpenFile,
    name_of: NameOf,
) -> None:
    """Add the records of older deltas that are still valid to a newer delta.

    All other records were replaced by a later change, which one of these deltas has.

    Args:
        deltas: The older deltas. The keys of their valid records are in memory meanwhile.
        writer: The writer of the newer delta.
        get: Returns the value of a key in the newer version; None: the key has no value.
        open_file: Opens a delta by its name.
        name_of: Returns the name of the delta of a version of the shard.

    Raises:
        CorruptDeltaError: An older delta is damaged or missing.
        ShardStorageError: The older deltas cannot be read.
        OSError: The newer one cannot be written.
    """
    keys = set[bytes]()
    for version, _, _ in deltas:
        with changes_of(open_file, name_of(version), version) as changes:
            for key, value in changes:
                if key in keys or get(key) != value:
                    continue
                keys.add(key)
                if value is None:
                    writer.delete(key)
                else:
                    writer.put(key, value)

"""Verifies whole files that manifests name."""

from typing import BinaryIO

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.recovery.sweep import delta_version_in
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.checked_blocks import DamagedFileError, reader_of
from beam_spark_runner.state.delta import read_changes

ARROW_START = b"ARROW1"
"""How views begin and end that versions of this package have written whose views had no digests."""


def check_file(name: str, content: BinaryIO) -> None:
    """Read all of a delta or view. See ``recovery.savepoint_copy.Check``.

    Of a view without digests, it is only checked that the file has its beginning and its end.

    Args:
        name: The name of the file.
        content: Its content; seekable.

    Raises:
        DamagedFileError: The file is damaged.
        CheckpointStorageError: The file cannot be read.
    """
    try:
        version = delta_version_in(name)
        if version is not None:
            for _ in read_changes(content, name, ShardVersion(*version)):
                pass
        elif not _is_whole_arrow_file(name, content):
            for _ in reader_of(content, name).contents():
                pass
    except OSError as error:
        raise CheckpointStorageError(name, str(error)) from error


def _is_whole_arrow_file(name: str, content: BinaryIO) -> bool:
    """Whether a file is an Arrow file; one that only begins like that is refused."""
    content.seek(0)
    if content.read(len(ARROW_START)) != ARROW_START:
        return False
    # Its beginning is not its end, too.
    content.seek(max(content.seek(0, 2) - len(ARROW_START), len(ARROW_START)))
    if content.read() != ARROW_START:
        raise DamagedFileError(name, "it is cut off")
    return True

"""Savepoints: complete copies of what one epoch has committed, each in a folder of its own.

Such a folder is a checkpoint folder with one manifest: nothing in it is ever deleted. Files are
copied while the pipeline runs. As long as that takes, a *pin* in the checkpoint folder keeps its
driver from deleting the files of the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from beam_spark_runner.core.errors import CheckpointStorageError, RunnerError
from beam_spark_runner.recovery.commit import DeletingStorage, epochs_in, newest
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    Manifest,
    encode,
    fence_name,
    manifest_name,
    pin_name,
    pinned_in,
)
from beam_spark_runner.recovery.sweep import named_by


class NothingCommittedError(RunnerError):
    """There is no epoch yet of which a savepoint could be made."""

    def __str__(self) -> str:
        return "there is nothing to make a savepoint of: no epoch has been committed yet"


class SavepointExistsError(RunnerError):
    """A savepoint would be written over another one, or over a checkpoint."""

    def __str__(self) -> str:
        return "there is a savepoint or a checkpoint in the folder already; name another one"


class CopyingStorage(DeletingStorage, Protocol):
    """Storage whose files are copied to another one."""

    def open(self, name: str) -> BinaryIO | None:
        """Open a file for reading; None: there is none of this name."""
        ...

    def put(self, name: str, content: BinaryIO) -> None:
        """Store a file, whole or not at all. See ``create`` for when it is durable.

        Args:
            name: of the file. One that is there has the same content, and may be replaced.
            content: is read to its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Savepoint:
    """From where to where an epoch is copied.

    Attributes:
        source: of a pipeline, whose driver may run, or of a savepoint.
        target: of a savepoint, or of a pipeline that begins with one. It may have files of a copy
            that was broken off.
    """

    source: CopyingStorage
    target: CopyingStorage

    def copy(self, manifest: Manifest) -> str | None:
        """Copy a manifest, and all files that it needs.

        The manifest comes last: before it, nothing is there to go on from. The next driver that
        starts there claims a higher fence than the one that has committed the epoch.

        Returns:
            None: it is copied. Else the name of a file that the manifest needs, and that is
            missing.
        """
        names = sorted(named_by(manifest))
        for name in names:
            content = self.source.open(name)
            if content is None:
                return name
            with content:
                self.target.put(name, content)
        self.target.create(fence_name(manifest.fence), b"")
        name = manifest_name(manifest.lineage, manifest.epoch)
        self.target.create(name, encode(manifest), names)
        return None


def make_savepoint(savepoint: Savepoint, lineage: str, unique: str) -> int:
    """Copy what the newest epoch of a pipeline has committed.

    Args:
        savepoint: from where to where.
        lineage: of the pipeline.
        unique: hexadecimal digits, of no other attempt.

    Returns:
        The number of the epoch.

    Raises:
        NothingCommittedError: there is none.
        SavepointExistsError: another savepoint is there.
        CorruptManifestError: the newest manifest is damaged, or a file that it needs is missing.
    """
    source = savepoint.source
    if epochs_in(savepoint.target, lineage):
        raise SavepointExistsError
    while True:
        epochs = epochs_in(source, lineage)
        if not epochs:
            raise NothingCommittedError
        pin = pin_name(epochs[-1], unique)
        source.create(pin, b"")
        try:
            # A driver that has listed the files before it could see the pin may have gone on by
            # some epochs since, and delete what these have superseded.
            manifest = _newest(source, lineage, epochs)
            if manifest is not None:
                missing = savepoint.copy(manifest)
                if missing is None:
                    return manifest.epoch
                if epochs_in(source, lineage) == epochs:
                    name = manifest_name(lineage, manifest.epoch)
                    raise CorruptManifestError(name, f"it needs {missing}, which is missing")
        finally:
            source.delete([pin])


def _newest(source: CopyingStorage, lineage: str, epochs: Sequence[int]) -> Manifest | None:
    """Return the newest manifest; None: there is a newer one than there was.

    Args:
        source: where.
        lineage: of it.
        epochs: those that were there.
    """
    try:
        (manifest,) = newest(source, lineage)
    except CheckpointStorageError:
        if epochs_in(source, lineage) == epochs:
            raise
        return None
    return manifest if manifest.epoch == epochs[-1] else None


def pins(names: Sequence[str]) -> Mapping[str, int]:
    """Return the names of the pins among all files, with the epochs that they pin."""
    found = {name: pinned_in(name) for name in names}
    return {name: epoch for name, epoch in found.items() if epoch is not None}

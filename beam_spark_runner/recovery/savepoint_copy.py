"""Savepoints: complete copies of what one epoch has committed, each in its own folder.

Such a folder is a checkpoint folder with one manifest, in which nothing is ever deleted. Files are
copied while the pipeline runs. Meanwhile, a *pin* in the checkpoint folder prevents its driver
from deleting the files of the epoch.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, RunnerError
from beam_spark_runner.recovery.checkpoint_subfolder import subfolder_in
from beam_spark_runner.recovery.commit import DeletingStorage, newest, numbers_in
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    Manifest,
    encode,
    epochs_of,
    fence_name,
    manifest_name,
    pin_name,
    pinned_in,
)
from beam_spark_runner.recovery.sweep import named_by


class NothingCommittedError(RunnerError):
    """No epoch has been committed yet, so that no savepoint can be made."""

    @override
    def __str__(self) -> str:
        return "there is nothing to make a savepoint of: no epoch has been committed yet"


class SavepointExistsError(RunnerError):
    """The folder of a savepoint has a savepoint or checkpoint already."""

    @override
    def __str__(self) -> str:
        return "there is a savepoint or a checkpoint in the folder already; name another one"


class CopyingStorage(DeletingStorage, Protocol):
    """Storage whose files can be copied to another storage."""

    def open(self, name: str) -> BinaryIO | None:
        """Open a file for reading; None: there is none of this name."""
        ...

    def put(self, name: str, content: BinaryIO) -> None:
        """Store a file, whole or not at all. See ``create`` for when it is durable.

        Args:
            name: The name of the file. An existing one has the same content; it may be replaced.
            content: The content, read to its end.
        """
        ...


Check: TypeAlias = Callable[[str, BinaryIO], None]
"""Reads all of a file that a manifest names, by its name and seekable content, and raises an error
that names it if it is damaged."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The storages between which an epoch is copied.

    Attributes:
        check: Each file is verified before it is copied.
        source: The storage of a pipeline, whose driver may run, or of a savepoint.
        target: The storage of a savepoint, or of a pipeline that starts from one. It may have
            files of an incomplete copy.
        reader: Hexadecimal digits of a pipeline that starts from a savepoint: a pin with them says
            that the savepoint is in use. Empty: the source has another pin.
    """

    check: Check
    source: CopyingStorage
    target: CopyingStorage
    reader: str = ""

    def begin_with(self, manifest: Manifest) -> str | None:
        """Copy a savepoint, as ``copy`` does, and pin it meanwhile, so that it is not removed.

        The copy begins another chain of epochs.
        """
        pin = pin_name(manifest.epoch, self.reader)
        # For those who may only read a savepoint, ``copy`` raises an error if it was removed.
        with contextlib.suppress(CheckpointStorageError):
            self.source.create(pin, b"")
        try:
            return self.copy(dataclasses.replace(manifest, chain=""))
        finally:
            with contextlib.suppress(CheckpointStorageError):
                self.source.delete([pin])

    def copy(self, manifest: Manifest) -> str | None:
        """Copy a manifest, and all files that it needs.

        The manifest is copied last, so that an incomplete copy has none. The fence is copied, too:
        the next driver in the target claims a higher one than that of the manifest.

        Returns:
            None if all is copied; else the name of a missing file that the manifest needs.

        Raises:
            StoredDataError: A file is damaged; the copy is incomplete.
        """
        names = sorted(named_by(manifest))
        for name in names:
            content = self.source.open(name)
            if content is None:
                return name
            with content:
                self.check(name, content)
                content.seek(0)
                self.target.put(name, content)
        self.target.create(fence_name(manifest.fence), b"")
        name = manifest_name(manifest.lineage, manifest.epoch)
        self.target.create(name, encode(manifest), names)
        return None


def make_savepoint(savepoint: Savepoint, lineage: str, unique: str) -> int:
    """Copy what the newest epoch of a pipeline has committed.

    Args:
        savepoint: The storages to copy from and to.
        lineage: The lineage of the pipeline.
        unique: Hexadecimal digits that no other attempt has.

    Returns:
        The number of the epoch.

    Raises:
        NothingCommittedError: No epoch is committed.
        SavepointExistsError: The target has a savepoint or checkpoint already.
        CorruptManifestError: The newest manifest is damaged, or a file that it needs is missing.
        StoredDataError: A file is damaged.
    """
    source = savepoint.source
    # Whoever opens a folder with a subfolder would not look for a savepoint next to it.
    if subfolder_in(savepoint.target) or numbers_in(savepoint.target, epochs_of(lineage)):
        raise SavepointExistsError
    while True:
        epochs = numbers_in(source, epochs_of(lineage))
        if not epochs:
            raise NothingCommittedError
        pin = pin_name(epochs[-1], unique)
        source.create(pin, b"")
        try:
            # A driver that listed the files before the pin existed may have committed some epochs
            # since, and delete files that these have superseded. Then the next epoch is tried.
            manifest = _newest(source, lineage, epochs)
            if manifest is not None:
                missing = savepoint.copy(manifest)
                if missing is None:
                    return manifest.epoch
                if numbers_in(source, epochs_of(lineage)) == epochs:
                    name = manifest_name(lineage, manifest.epoch)
                    raise CorruptManifestError(name, f"it refers to {missing}, which is missing")
        finally:
            source.delete([pin])


def _newest(source: CopyingStorage, lineage: str, epochs: Sequence[int]) -> Manifest | None:
    """Return the newest manifest; None: a newer epoch than the pinned one is committed.

    Args:
        source: The storage of the pipeline.
        lineage: The lineage of the pipeline.
        epochs: The committed epochs before the pin was created; the last one is pinned.
    """
    try:
        (manifest,) = newest(source, epochs_of(lineage))
    except CheckpointStorageError:
        if numbers_in(source, epochs_of(lineage)) == epochs:
            raise
        return None
    return manifest if manifest.epoch == epochs[-1] else None


def pins(names: Sequence[str]) -> Mapping[str, int]:
    """Return the pinned epochs, by the names of their pins among the names of all files."""
    epochs = {name: pinned_in(name) for name in names}
    return {name: epoch for name, epoch in epochs.items() if epoch is not None}

"""Commits epochs, even if other drivers of the same pipeline are still running.

A driver claims a fence when it starts: the next number. From then on no driver with a lower fence
commits, except for a commit that was under way: a driver that finds such a manifest in place of
its own adopts it. The newest manifest is never deleted, so that a driver that was suspended while
older ones were deleted notices that it is too late.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    Manifest,
    decode,
    encode,
    epoch_in,
    fence_in,
    fence_name,
    manifest_name,
)


class Storage(Protocol):
    """The storage of manifests and fences, which all drivers of a pipeline share."""

    def names(self) -> Sequence[str]:
        """Return the names of all files."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise an error if there is none of that name."""
        ...

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """Create a file, whole and durable, or not at all; return False if its name is taken.

        After an error, the file may exist.

        Args:
            name: The name of the file.
            data: The content of the file.
            after: Names of files of other processes, which are made durable before this file
                appears.
        """
        ...


class DeletingStorage(Storage, Protocol):
    """Storage from which old manifests are removed."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files. It is not an error if one does not exist."""
        ...


def claim(storage: Storage) -> int:
    """Claim a fence that is higher than all others, and return it."""
    fence = _highest_fence(storage)
    while True:
        fence += 1
        if storage.create(fence_name(fence), b""):
            return fence


def newest(
    storage: Storage, lineage: str, count: int = 1, fence: int | None = None
) -> tuple[Manifest, ...]:
    """Return the newest manifests, the oldest of them first; empty: nothing was committed.

    Args:
        storage: The storage of the pipeline.
        lineage: The lineage of the pipeline.
        count: The most manifests to return. A damaged one that is not the newest is left out, with
            all before it: no pipeline continues from them.
        fence: The fence that the driver has claimed. If a higher one is claimed during the reads,
            its driver may delete manifests, and a driver with a lower fence that is late may put
            others in their place.

    Raises:
        FencedError: A driver with a higher fence has started.
        CorruptManifestError: The newest one is damaged. The error names the previous one.
    """
    epochs = epochs_in(storage, lineage)
    found: list[Manifest] = []
    for epoch in reversed(epochs[-count:]):
        name = manifest_name(lineage, epoch)
        try:
            found.insert(0, decode(storage.read(name), name))
        except CorruptManifestError as error:
            if found:
                break
            why = error.why
            if epochs[1:]:
                why += f"; the previous one is {manifest_name(lineage, epochs[-2])}, from which "
                why += "the pipeline continues if this file is removed"
            raise CorruptManifestError(name, why) from error
    if fence is not None and (highest := _highest_fence(storage)) > fence:
        raise FencedError(fence, highest)
    return tuple(found)


def commit(storage: Storage, manifest: Manifest, after: Iterable[str] = ()) -> Manifest:
    """Commit an epoch. May be called again, with the same or another manifest, after an error.

    Args:
        storage: The storage of the pipeline.
        manifest: The manifest of the epoch, with the fence that this driver has claimed.
        after: See ``Storage.create``.

    Returns:
        The manifest that has committed the epoch: this one, even if an earlier call has stored it
        and failed; or another one, of a driver with a lower fence or of an earlier call, from
        which this driver has to continue under its own fence.

    Raises:
        FencedError: A driver with a higher fence has started, or the folder was emptied, so that
            another pipeline may have begun in it.
        CorruptManifestError: Another manifest has committed the epoch, and is damaged.
    """
    highest = _highest_fence(storage)
    if highest != manifest.fence:
        raise FencedError(manifest.fence, highest)
    name = manifest_name(manifest.lineage, manifest.epoch)
    found = manifest
    if not storage.create(name, encode(manifest), after):
        found = decode(storage.read(name), name)
    if found.fence > manifest.fence:
        raise FencedError(manifest.fence, found.fence)
    # If another driver has committed later epochs since the fences were read, it may have deleted
    # this epoch's manifest. Then the one that exists now, from this driver or not, has no effect.
    if any(epoch > manifest.epoch for epoch in epochs_in(storage, manifest.lineage)):
        raise FencedError(manifest.fence, _highest_fence(storage))
    return found


def superseded(storage: Storage, lineage: str, keep: int, fence: int) -> tuple[str, ...]:
    """Return the names of the manifests that a driver may delete, oldest first.

    Args:
        storage: The storage of the pipeline.
        lineage: The lineage of the pipeline.
        keep: The number of newest manifests that are not deleted, at least one.
        fence: The fence of the driver. If there is a higher one, it may not delete anything.

    Raises:
        InvariantError: ``keep`` is less than one.
    """
    if keep < 1:
        raise InvariantError(f"{keep} manifests would be kept")
    if _highest_fence(storage) > fence:
        return ()
    return tuple(manifest_name(lineage, epoch) for epoch in epochs_in(storage, lineage)[:-keep])


def _highest_fence(storage: Storage) -> int:
    return max((fence for name in storage.names() if (fence := fence_in(name))), default=0)


def epochs_in(storage: Storage, lineage: str) -> list[int]:
    """Return the epochs whose manifests exist, in order."""
    found = (epoch_in(name, lineage) for name in storage.names())
    return sorted(epoch for epoch in found if epoch is not None)

"""Commits epochs, even if other drivers of the same pipeline are still running.

A driver claims a fence when it starts: the next number. From then on no driver with a lower one
commits again, but for a commit that was under way: whoever finds a manifest of a lower fence in
place of its own adopts it. The newest manifest is never deleted, so that a driver that has slept
through the deletion of older ones sees that it is too late.
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
    """Where manifests and fences are: all drivers see the same."""

    def names(self) -> Sequence[str]:
        """Return the names of all files."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file. If there is none of that name: an error of its own."""
        ...

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """Create a file: whole and durable, or not at all. False: there is one of that name.

        After an error it may be there or not.

        Args:
            name: of the file.
            data: its content.
            after: names of files that others have written: before this one gets its name they are
                durable, too.
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
    """Return the newest manifests, the oldest of them first; none: nothing was committed.

    Args:
        storage: of all drivers of the pipeline.
        lineage: whose manifests.
        count: how many, at most. One that is damaged is left out, with all before it, if it is
            not the newest one: no pipeline goes on from them.
        fence: that the driver has claimed. While it read, one with a higher fence may have deleted
            what was listed, so that a late one with a lower fence could put its own in that place.

    Raises:
        FencedError: a driver with a higher fence has started.
        CorruptManifestError: the newest one is damaged. The error names the one before.
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
                why += f"; the one before it is {manifest_name(lineage, epochs[-2])}, from which "
                why += "the pipeline goes on if this file is removed"
            raise CorruptManifestError(name, why) from error
    if fence is not None and (highest := _highest_fence(storage)) > fence:
        raise FencedError(fence, highest)
    return tuple(found)


def commit(storage: Storage, manifest: Manifest, after: Iterable[str] = ()) -> Manifest:
    """Commit an epoch. May be called again, with the same or another manifest, after an error.

    Args:
        storage: of all drivers of the pipeline.
        manifest: with the fence that this driver has claimed. That of the manifest before may be
            lower, if it was adopted.
        after: see ``Storage.create``.

    Returns:
        The manifest that has committed it: this one, even if the answer to an earlier call was
        lost, or another one, from which this driver has to go on under its own fence. That is of
        a driver with a lower fence, or of an earlier call of this one.

    Raises:
        FencedError: a driver with a higher fence has started, or the folder was emptied: another
            pipeline may have begun in it.
        CorruptManifestError: another manifest has committed it, which is damaged.
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
    # If others have gone on since the look at the fences, then they may have deleted this epoch's
    # manifest, so that the one that is there now, ours or not, commits nothing.
    if any(epoch > manifest.epoch for epoch in epochs_in(storage, manifest.lineage)):
        raise FencedError(manifest.fence, _highest_fence(storage))
    return found


def superseded(storage: Storage, lineage: str, keep: int, fence: int) -> tuple[str, ...]:
    """Return the names of the manifests that a driver may delete, oldest first.

    Args:
        storage: of all drivers of the pipeline.
        lineage: whose manifests.
        keep: how many of the newest ones stay; at least one.
        fence: of the driver. If there is a higher one, it may delete nothing any more.

    Raises:
        InvariantError: none would stay.
    """
    if keep < 1:
        raise InvariantError(f"{keep} manifests would be kept")
    if _highest_fence(storage) > fence:
        return ()
    return tuple(manifest_name(lineage, epoch) for epoch in epochs_in(storage, lineage)[:-keep])


def _highest_fence(storage: Storage) -> int:
    return max((fence for name in storage.names() if (fence := fence_in(name))), default=0)


def epochs_in(storage: Storage, lineage: str) -> list[int]:
    """Return the epochs whose manifests are there, in order."""
    found = (epoch_in(name, lineage) for name in storage.names())
    return sorted(epoch for epoch in found if epoch is not None)

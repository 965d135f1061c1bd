"""Committing epochs, where other drivers of the same pipeline may still be alive.

A driver claims a fence when it starts: the next number. From then on no driver with a lower one
commits again, but for a commit that was under way: whoever finds a manifest of a lower fence in
place of its own adopts it.
"""

from collections.abc import Sequence
from typing import Protocol

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
        """Return the content of a file."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Create a file: whole and durable, or not at all. False: there is one of that name."""
        ...


def claim(storage: Storage) -> int:
    """Return a fence that is higher than all that were claimed."""
    fence = _highest_fence(storage)
    while True:
        fence += 1
        if storage.create(fence_name(fence), b""):
            return fence


def newest(storage: Storage, lineage: str) -> Manifest | None:
    """Return the newest manifest; None: nothing was committed.

    Raises:
        CorruptManifestError: it is damaged. The error names the one before.
    """
    epochs = _epochs(storage, lineage)
    if not epochs:
        return None
    name = manifest_name(lineage, epochs[-1])
    try:
        return decode(storage.read(name), name)
    except CorruptManifestError as error:
        before = f"; the one before it is {manifest_name(lineage, epochs[-2])}, from which the "
        before += "pipeline goes on if this file is removed"
        raise CorruptManifestError(name, error.why + (before if epochs[1:] else "")) from error


def commit(storage: Storage, manifest: Manifest) -> Manifest:
    """Commit an epoch.

    Returns:
        The manifest that has committed it: this one, or that of a driver with a lower fence, from
        which this one has to go on.

    Raises:
        FencedError: a driver with a higher fence has started.
    """
    highest = _highest_fence(storage)
    if highest > manifest.fence:
        raise FencedError(manifest.fence, highest)
    name = manifest_name(manifest.lineage, manifest.epoch)
    if storage.create(name, encode(manifest)):
        return manifest
    found = decode(storage.read(name), name)
    if found.fence > manifest.fence:
        raise FencedError(manifest.fence, found.fence)
    return found


def _highest_fence(storage: Storage) -> int:
    return max((fence for name in storage.names() if (fence := fence_in(name))), default=0)


def _epochs(storage: Storage, lineage: str) -> list[int]:
    found = (epoch_in(name, lineage) for name in storage.names())
    return sorted(epoch for epoch in found if epoch is not None)

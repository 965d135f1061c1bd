"""Commits manifests, even if other drivers of the same pipeline are still running.

A driver claims a fence when it starts: the next number. From then on no driver with a lower fence
commits, except for a commit that was under way: a driver that finds such a manifest in place of
its own adopts it. The newest manifest is never deleted, so that a driver that was suspended while
older ones were deleted notices that it is too late.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.form import ManifestForm, ManifestT
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    fence_in,
    fence_name,
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


def claim(storage: Storage, owner: bytes = b"") -> int:
    """Claim a fence that is higher than all others, and return it.

    Args:
        storage: The storage of the pipeline.
        owner: Tells whose fence it is, to the same owner; see ``last_owner``.
    """
    fence = highest_fence(storage)
    while True:
        fence += 1
        if storage.create(fence_name(fence), owner):
            return fence


def last_owner(storage: Storage) -> bytes | None:
    """Return who has claimed the highest fence; None: nobody has claimed one.

    It is empty for a program, and the id of the job for a job server that continues it.
    """
    highest = highest_fence(storage)
    return storage.read(fence_name(highest)) if highest else None


def newest(
    storage: Storage,
    form: ManifestForm[ManifestT],
    count: int = 1,
    fence: int | None = None,
) -> tuple[ManifestT, ...]:
    """Return the newest manifests, the oldest of them first; empty: nothing was committed.

    Args:
        storage: The storage of the pipeline.
        form: The form of its manifests.
        count: The most manifests to return. A damaged one that is not the newest is left out, with
            all before it: no pipeline continues from them.
        fence: The fence that the driver has claimed. If a higher one is claimed during the reads,
            its driver may delete manifests, and a driver with a lower fence that is late may put
            others in their place.

    Raises:
        FencedError: A driver with a higher fence has started.
        CorruptManifestError: The newest one is damaged. The error names the previous one.
    """
    numbers = numbers_in(storage, form)
    manifests: list[ManifestT] = []
    for number in reversed(numbers[-count:]):
        name = form.name_of(number)
        try:
            manifests.insert(0, form.decode(storage.read(name), name))
        except CorruptManifestError as error:
            if manifests:
                break
            why = error.why
            if numbers[1:]:
                why += f"; the previous one is {form.name_of(numbers[-2])}, from which "
                why += "the pipeline continues if this file is removed"
            raise CorruptManifestError(name, why) from error
    if fence is not None:
        check_fence(storage, fence)
    return tuple(manifests)


def check_fence(storage: Storage, fence: int) -> None:
    """Check that no other driver has taken the pipeline over.

    Args:
        storage: The storage of the pipeline.
        fence: The fence that this driver has claimed.

    Raises:
        FencedError: A driver with a higher fence has started.
    """
    if (highest := highest_fence(storage)) > fence:
        raise FencedError(fence, highest)


def commit(
    storage: Storage,
    form: ManifestForm[ManifestT],
    manifest: ManifestT,
    after: Iterable[str] = (),
) -> ManifestT:
    """Commit a manifest. May be called again, with the same or another one, after an error.

    Args:
        storage: The storage of the pipeline.
        form: The form of its manifests.
        manifest: The manifest, with the fence that this driver has claimed.
        after: See ``Storage.create``.

    Returns:
        The manifest that was committed with this number: this one, even if an earlier call has
        stored it and failed; or another one, of a driver with a lower fence or of an earlier call,
        from which this driver has to continue under its own fence.

    Raises:
        FencedError: A driver with a higher fence has started, or the folder was emptied, so that
            another pipeline may have begun in it.
        CorruptManifestError: Another manifest was committed with this number, and is damaged.
    """
    fence, number = form.fence_of(manifest), form.number_of(manifest)
    highest = highest_fence(storage)
    if highest != fence:
        raise FencedError(fence, highest)
    name = form.name_of(number)
    committed = manifest
    if not storage.create(name, form.encode(manifest), after):
        committed = form.decode(storage.read(name), name)
    if form.fence_of(committed) > fence:
        raise FencedError(fence, form.fence_of(committed))
    # If another driver has committed later ones since the fences were read, it may have deleted
    # the manifest of this number. Then the one that exists now, from this driver or not, has no
    # effect.
    if any(later > number for later in numbers_in(storage, form)):
        raise FencedError(fence, highest_fence(storage))
    return committed


def superseded(
    storage: Storage, form: ManifestForm[ManifestT], keep: int, fence: int
) -> tuple[str, ...]:
    """Return the names of the manifests that a driver may delete, oldest first.

    Args:
        storage: The storage of the pipeline.
        form: The form of its manifests.
        keep: The number of newest manifests that are not deleted, at least one.
        fence: The fence of the driver. If there is a higher one, it may not delete anything.

    Raises:
        InvariantError: ``keep`` is less than one.
    """
    if keep < 1:
        raise InvariantError(f"{keep} manifests would be kept")
    if highest_fence(storage) > fence:
        return ()
    return tuple(map(form.name_of, numbers_in(storage, form)[:-keep]))


def highest_fence(storage: Storage) -> int:
    """Return the highest fence that was claimed. 0: none was."""
    return max((fence for name in storage.names() if (fence := fence_in(name))), default=0)


def numbers_in(storage: Storage, form: ManifestForm[ManifestT]) -> list[int]:
    """Return the numbers of the manifests that exist, in order."""
    numbers = map(form.number_in, storage.names())
    return sorted(number for number in numbers if number is not None)

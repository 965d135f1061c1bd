"""The subfolder of a checkpoint folder in which a streaming pipeline has its files.

A user may remove a checkpoint and start another pipeline in the same folder, with the same numbers
of fences and epochs. A driver of the removed one that sleeps meanwhile, between a look at the
fences and the creation of its manifest, would commit in the new one when it wakes up. So each
checkpoint has a subfolder whose name no other checkpoint has, and ``subfolder`` names it.
Checkpoints of earlier versions, savepoints, and checkpoints that a job server has named after its
job have no subfolder.
"""

from beam_spark_runner.recovery.commit import Storage
from beam_spark_runner.recovery.manifest import fence_in, is_manifest

SUBFOLDER = "subfolder"
"""The file with the name of the subfolder."""


def subfolder_in(storage: Storage) -> str:
    """Return the name of the subfolder of a checkpoint; empty: it has none.

    Args:
        storage: The checkpoint folder.
    """
    return storage.read(SUBFOLDER).decode() if SUBFOLDER in storage.names() else ""


def chosen_subfolder(storage: Storage, unique: str) -> str:
    """Return the name of the subfolder of a checkpoint, which is chosen if it is new.

    Args:
        storage: The checkpoint folder.
        unique: Hexadecimal digits that no other call has.

    Returns:
        The name. Empty: an earlier version has begun the checkpoint.
    """
    names = storage.names()
    if SUBFOLDER not in names:
        if any(is_manifest(name) or fence_in(name) for name in names):
            return ""
        storage.create(SUBFOLDER, f"epochs-{unique}".encode())
    return storage.read(SUBFOLDER).decode()

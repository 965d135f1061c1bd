"""Notices groups of keys in a state store that are too large to be read as a whole."""

from collections.abc import Iterator

from beam_spark_runner.observing.epoch_status import EpochStatus

LARGEST_BYTES = 64 << 20
"""The size of a group from which on there is a warning: so much memory and time it takes."""


class LargeGroups:
    """Follows the epochs of one run."""

    def __init__(self) -> None:
        self._warned_of: set[str] = set()

    def after_epoch(self, status: EpochStatus) -> Iterator[tuple[str, int]]:
        """Yield names of steps and the bytes of their largest group, each name once."""
        for names, size in status.group_bytes.items():
            if size > LARGEST_BYTES and names not in self._warned_of:
                self._warned_of.add(names)
                yield names, size


def text_of_group(names: str, size: int) -> str:
    """Return the warning of a large group.

    Args:
        names: The names of the steps that have it.
        size: Its bytes.
    """
    return (
        f"{names}: a group of keys in the state store has {size >> 20:,} MB, and each epoch reads "
        "at least one group of each partition as a whole. Groups would be smaller with a greater "
        "--max_parallelism, the number of groups, which a checkpoint cannot change: set it when "
        "the pipeline starts with another --checkpoint_dir"
    )

"""Decides when partitions of a streaming pipeline are spread over executors that have joined."""

from collections.abc import Set


def should_spread(
    partitions: int, slots: int, anchored: Set[str], previous: Set[str], now: Set[str]
) -> bool:
    """Whether anchored partitions are to be spread over all executors again.

    That moves most partitions, and the shard of a moved one is rebuilt. So it is done only if new
    executors would be idle while tasks wait for the old ones.

    Args:
        partitions: The number of partitions of each level.
        slots: The number of tasks that run at a time on all present executors.
        anchored: The executors that were up when the partitions were anchored.
        previous: The executors that were up at the previous check, at least one epoch ago.
        now: The executors that are up now.

    Example:
        >>> should_spread(4, 4, {"a", "b"}, {"a", "b"}, {"a", "b"})  # nobody has joined
        False
        >>> should_spread(4, 4, {"a", "b"}, {"a"}, {"a", "c"})  # others may be on their way
        False
        >>> should_spread(4, 4, {"a", "b"}, {"a", "c"}, {"a", "c"})  # ``c`` has replaced ``b``
        True
        >>> should_spread(4, 8, {"a"}, {"a", "b"}, {"a", "b"})  # ``a`` has a slot for each
        False
    """
    if not now - anchored or now != previous:
        return False
    remaining = len(now & anchored)
    return partitions * len(now) > slots * remaining

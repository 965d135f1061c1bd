"""When the partitions of a streaming pipeline are spread over executors that have joined."""

from collections.abc import Set


def should_spread(
    partitions: int, slots: int, anchored: Set[str], before: Set[str], now: Set[str]
) -> bool:
    """Whether partitions that have their places are to be spread anew.

    That moves most of them, and what moves has its state rebuilt. So it is done only for executors
    that would stand idle while tasks wait for those that were there before.

    Args:
        partitions: of each level.
        slots: how many tasks run at a time on all executors that are up now.
        anchored: the executors that were up when partitions got their places.
        before: those that were up when one epoch or more ago somebody looked.
        now: those that are up now.

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
    if not now - anchored or now != before:
        return False
    left = len(now & anchored)
    return partitions * len(now) > slots * left

"""Derives the number of partitions of an exchange from the cluster and, if known, the data size."""

BYTES_PER_PARTITION = 256 << 20
"""About the bytes that Spark sorts in memory, with the default heap of an executor."""

MAX_FROM_BYTES = 2_000
"""The default of ``--max_parallelism``.

Each task sends a mark to each partition of the next exchange: with this many, four million.
"""

MIN_IF_GROWING = 200
"""The least number with dynamic allocation: the default of ``spark.sql.shuffle.partitions``."""


def derive_min_partitions(slots: int, *, shuffle_partitions: int | None, can_grow: bool) -> int:
    """Choose the number of partitions for data of unknown size.

    Args:
        slots: The number of tasks that run at a time on the present executors.
        shuffle_partitions: ``spark.sql.shuffle.partitions`` if the user has set it, else None.
        can_grow: Whether Spark starts executors when tasks wait (dynamic allocation). With only
            as many partitions as slots, no task would wait.
    """
    if shuffle_partitions is not None:
        return max(1, shuffle_partitions)
    return max(1, slots, MIN_IF_GROWING if can_grow else 0)


def derive_partitions(
    min_partitions: int, coded_bytes: int, max_partitions: int = MAX_FROM_BYTES
) -> int:
    """Choose the number of partitions of a segment that reads ``coded_bytes`` of rows.

    Below the greatest number, it is a multiple of the least one, which is usually that of the
    slots: three equal tasks take as long in two slots as four smaller ones.

    Args:
        min_partitions: The least number of partitions.
        coded_bytes: The bytes of the rows.
        max_partitions: The most partitions that are chosen because of the bytes.

    Example:
        four slots: 1 GB of rows -> 4 partitions, 1.1 GB -> 8, 10 GB -> 40
    """
    rounds = -(-coded_bytes // (BYTES_PER_PARTITION * min_partitions))
    return max(min_partitions, min(rounds * min_partitions, max_partitions))

"""Derives the number of partitions of an exchange from the cluster and, if known, the data."""

BYTES_PER_PARTITION = 256 << 20
"""What Spark sorts of a partition in memory, with the default heap of an executor."""

MAX_FROM_BYTES = 2_000
"""The default of ``--max_parallelism``.

Each task sends a mark to each partition of the next exchange: four million in all.
"""

GROWING = 200
"""Partitions where the cluster grows with its tasks: Spark's own number for a shuffle."""


def derive_least(slots: int, *, shuffle_partitions: int | None, can_grow: bool) -> int:
    """Choose the number of partitions for data of unknown size.

    Args:
        slots: how many tasks run at a time on the executors that are up now.
        shuffle_partitions: what the user has set ``spark.sql.shuffle.partitions`` to.
            None: nothing.
        can_grow: Spark starts more executors as tasks wait for them (dynamic allocation);
            as many partitions as slots would never have it start one.
    """
    if shuffle_partitions is not None:
        return max(1, shuffle_partitions)
    return max(1, slots, GROWING if can_grow else 0)


def derive_partitions(least: int, coded_bytes: int, most: int = MAX_FROM_BYTES) -> int:
    """Choose the number of partitions of a segment that reads ``coded_bytes`` of rows.

    Args:
        least: whatever the size.
        coded_bytes: of rows.
        most: however many bytes there are.

    Example:
        four slots: 1 GB of rows -> 4 partitions, 10 GB of rows -> 40
    """
    return max(least, min(-(-coded_bytes // BYTES_PER_PARTITION), most))

"""Key groups: ranges of hashes; each partition of a streaming pipeline has a range of groups.

``routing`` has the same computation for many keys at once.
"""

from beam_spark_runner.core.routing import HASH_BITS


def groups_of(partition: int, groups: int, partitions: int) -> range:
    """Return the key groups of a partition. See ``routing.partitions_of_groups``."""
    return range(-(-partition * groups // partitions), -(-(partition + 1) * groups // partitions))


def group_of(hashed: int, groups: int) -> int:
    """Return the key group of a hash, of ``HASH_BITS`` bits. See ``routing.key_groups_of``."""
    return (hashed >> (HASH_BITS - 32)) * groups >> 32


def hashes_of(partition: int, groups: int, partitions: int) -> range:
    """Return the range of hashes, of ``HASH_BITS`` bits, of a partition."""
    mine = groups_of(partition, groups, partitions)
    return range(_first_hash(mine.start, groups), _first_hash(mine.stop, groups))


def overlapping(partition: int, groups: int, partitions: int, others: int) -> range:
    """Return the partitions of another division that share a key group with a partition.

    Args:
        partition: A partition of this division.
        groups: The number of key groups, at least ``partitions``.
        partitions: The number of partitions of this division.
        others: The number of partitions of the other division.
    """
    mine = groups_of(partition, groups, partitions)
    return range(mine.start * others // groups, (mine.stop - 1) * others // groups + 1)


def _first_hash(group: int, groups: int) -> int:
    """Return the first hash of a key group. See ``routing.key_groups_of``."""
    return -(-(group << 32) // groups) << (HASH_BITS - 32)

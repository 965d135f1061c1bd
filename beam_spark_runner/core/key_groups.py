"""Key groups: ranges of hashes, of which each partition of a streaming pipeline has some.

``routing`` computes the same for many keys at once.
"""

from beam_spark_runner.core.routing import HASH_BITS


def groups_of(partition: int, groups: int, partitions: int) -> range:
    """Return the key groups of a partition. See ``routing.partitions_of_groups``."""
    return range(-(-partition * groups // partitions), -(-(partition + 1) * groups // partitions))


def hashes_of(partition: int, groups: int, partitions: int) -> range:
    """Return the hashes, of ``HASH_BITS`` bits, that fall on a partition."""
    mine = groups_of(partition, groups, partitions)
    return range(_first_hash(mine.start, groups), _first_hash(mine.stop, groups))


def overlapping(partition: int, groups: int, partitions: int, others: int) -> range:
    """Return those of other partitions that have a key group of this one.

    Args:
        partition: one of ``partitions``.
        groups: how many key groups there are; at least as many as partitions.
        partitions: how many there are.
        others: how many there are if the key groups are divided otherwise.
    """
    mine = groups_of(partition, groups, partitions)
    return range(mine.start * others // groups, (mine.stop - 1) * others // groups + 1)


def _first_hash(group: int, groups: int) -> int:
    """Return the first hash of a key group. See ``routing.key_groups_of``."""
    return -(-(group << 32) // groups) << (HASH_BITS - 32)

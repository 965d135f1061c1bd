"""Key groups of one key are those that are computed for many at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core import routing
from beam_spark_runner.core.key_groups import groups_of, hashes_of, overlapping

DIVISIONS = [(128, 1), (128, 5), (128, 128), (7, 3), (1, 1), (32768, 200)]
PARTITIONS = st.integers(1, 40)


@pytest.mark.parametrize(("groups", "partitions"), DIVISIONS)
def test_each_partition_has_a_range_of_hashes(groups: int, partitions: int) -> None:
    ranges = [hashes_of(partition, groups, partitions) for partition in range(partitions)]
    assert [each.start for each in ranges[1:]] == [each.stop for each in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop) == (0, 1 << routing.HASH_BITS)
    ends = np.array([hashed for each in ranges for hashed in (each[0], each[-1])], np.uint64)
    found = routing.partitions_of_groups(
        routing.key_groups_of(ends, groups), groups, partitions
    ).tolist()
    assert found == [partition for partition in range(partitions) for _ in range(2)]


@given(st.integers(40, 200), PARTITIONS, PARTITIONS)
def test_partitions_overlap_if_they_share_a_group(groups: int, before: int, after: int) -> None:
    for partition in range(before):
        mine = set(groups_of(partition, groups, before))
        assert mine
        assert list(overlapping(partition, groups, before, after)) == [
            other for other in range(after) if mine.intersection(groups_of(other, groups, after))
        ]

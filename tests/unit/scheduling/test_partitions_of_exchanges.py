import pytest

from beam_spark_runner.scheduling.partition_counts import (
    BYTES_PER_PARTITION,
    MAX_FROM_BYTES,
    MIN_IF_GROWING,
    derive_min_partitions,
    derive_partitions,
)


@pytest.mark.parametrize(
    ("slots", "shuffle_partitions", "can_grow", "partitions"),
    [
        pytest.param(6, None, False, 6, id="one for each slot"),
        pytest.param(6, 50, False, 50, id="as the user has set it for shuffles"),
        pytest.param(6, 1, False, 1, id="even if that is one"),
        pytest.param(6, 0, False, 1, id="but never none"),
        pytest.param(60, 50, True, 50, id="the user's word counts on growing clusters, too"),
        pytest.param(2, None, True, MIN_IF_GROWING, id="two slots now, more when tasks wait"),
        pytest.param(999, None, True, 999, id="a growing cluster that is large by now"),
        pytest.param(0, None, False, 1, id="no executor has registered yet"),
    ],
)
def test_data_of_unknown_size_has_a_partition_for_each_slot(
    slots: int, shuffle_partitions: int | None, can_grow: bool, partitions: int
) -> None:
    least = derive_min_partitions(slots, shuffle_partitions=shuffle_partitions, can_grow=can_grow)
    assert least == partitions


@pytest.mark.parametrize(
    ("coded_bytes", "partitions"),
    [
        pytest.param(0, 6, id="nothing known of the data"),
        pytest.param(6 * BYTES_PER_PARTITION, 6, id="fits"),
        pytest.param(
            6 * BYTES_PER_PARTITION + 1, 12, id="a byte too many, and another round of all slots"
        ),
        pytest.param(10**6 * BYTES_PER_PARTITION, MAX_FROM_BYTES, id="marks must not flood"),
    ],
)
def test_partitions_grow_with_the_bytes_up_to_a_maximum(coded_bytes: int, partitions: int) -> None:
    assert derive_partitions(6, coded_bytes) == partitions

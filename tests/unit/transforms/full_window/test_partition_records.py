"""The records of a partition stream: they are there once."""

import itertools

import pytest

from beam_spark_runner.transforms.full_window.partition_records import (
    PartitionRecords,
    SecondPassError,
)


def test_a_pass_may_continue_where_it_was_left() -> None:
    records = PartitionRecords([[1, 2], [3, 4]])
    assert next(records) == 1
    assert [*itertools.islice(records, 2)] == [2, 3]
    assert [*records] == [4]
    with pytest.raises(StopIteration):
        next(records)
    with pytest.raises(SecondPassError):
        iter(records)

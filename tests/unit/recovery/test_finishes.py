import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.recovery.finishes import (
    Finish,
    all_have_finished,
    decode_record,
    encode_record,
    finish_in,
    finished_partitions,
    keeps_tasks,
    tasks_before,
)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, (1 << 63) - 1))
def test_names_say_what_has_finished(partition: int, partitions: int, attempt: int) -> None:
    finish = Finish(partition, partitions, attempt)
    assert finish_in(finish.record_name) == finish
    assert finish_in(finish.rows_name) is None


@given(st.binary(max_size=40), st.data())
def test_a_damaged_record_is_noticed(report: bytes, data: st.DataObject) -> None:
    record = encode_record(report)
    assert decode_record(record) == report
    harmed = bytearray(record)
    harmed[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    assert decode_record(bytes(harmed)) is None
    assert decode_record(record[: data.draw(st.integers(0, len(record) - 1))]) is None


def names(*finishes: tuple[int, int, int]) -> list[str]:
    return [Finish(*finish).record_name for finish in finishes]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["submission", ".p00000of00002-00.done.1f"], {}, id="other files"),
        pytest.param(
            [Finish(0, 2, 7).rows_name, *names((1, 2, 8))],
            {2: {1: [Finish(1, 2, 8)]}},
            id="rows alone have not finished",
        ),
        pytest.param(
            names((0, 2, 9), (0, 2, 7), (1, 2, 8)),
            {2: {0: [Finish(0, 2, 7), Finish(0, 2, 9)], 1: [Finish(1, 2, 8)]}},
            id="two attempts: in the order of their ids",
        ),
        pytest.param(
            names((0, 4, 1), (1, 4, 2), (0, 2, 3)),
            {4: {0: [Finish(0, 4, 1)], 1: [Finish(1, 4, 2)]}, 2: {0: [Finish(0, 2, 3)]}},
            id="two numbers of tasks",
        ),
        pytest.param(names((0, 0, 1), (5, 2, 3)), {}, id="it is unknown how many tasks there were"),
    ],
)
def test_which_attempts_may_be_kept(
    found: list[str], expected: dict[int, dict[int, list[Finish]]]
) -> None:
    assert finished_partitions(found) == expected


@pytest.mark.parametrize(
    ("found", "tasks"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param(names((0, 4, 1), (1, 4, 2), (0, 2, 3)), 4, id="most have finished"),
        pytest.param(
            names((0, 4, 1), (0, 4, 5), (0, 2, 3), (1, 2, 4)),
            2,
            id="partitions count, not attempts",
        ),
        pytest.param(names((0, 4, 1), (0, 2, 3)), 4, id="as many of both: the larger number"),
    ],
)
def test_of_which_number_of_tasks_most_have_finished(found: list[str], tasks: int | None) -> None:
    assert tasks_before(finished_partitions(found)) == tasks


@pytest.mark.parametrize(
    ("before", "kept", "slots", "keeps"),
    [
        pytest.param(10, 0, 4, False, id="nothing is kept"),
        pytest.param(10, 1, 4, True, id="a smaller cluster"),
        pytest.param(10, 1, 20, True, id="twice as many slots"),
        pytest.param(10, 4, 21, False, id="less than half is kept, and there are more slots"),
        pytest.param(10, 5, 1000, True, id="half is kept"),
        pytest.param(10, 10, 1000, True, id="all is kept"),
        pytest.param(1, 1, 1000, True, id="one task"),
    ],
)
def test_whether_the_number_of_tasks_is_chosen_again(
    before: int, kept: int, slots: int, keeps: bool
) -> None:
    assert keeps_tasks(before, kept, slots) is keeps


@pytest.mark.parametrize(
    ("found", "all_have"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param(names((0, 2, 1), (0, 2, 2)), False, id="one of two, twice"),
        pytest.param(names((0, 2, 1), (1, 2, 2)), True, id="both"),
        pytest.param(names((0, 3, 1), (0, 2, 1), (1, 2, 2)), True, id="all of one number of tasks"),
    ],
)
def test_whether_all_tasks_have_finished(found: list[str], all_have: bool) -> None:
    assert all_have_finished(finished_partitions(found)) is all_have

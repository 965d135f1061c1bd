"""What an epoch leaves to be written, and what a later start finds of it."""

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.begun_writes import (
    DELTA,
    ICEBERG,
    Found,
    Outcome,
    TargetState,
    has_mark,
)
from beam_spark_runner.recovery.epoch_writes import (
    EpochWrite,
    RowsOfTask,
    outcome_of,
    unwritten_after,
    writer_name,
)

AGAIN, WRITTEN, UNKNOWN = Outcome.WRITE_AGAIN, Outcome.IS_WRITTEN, Outcome.UNKNOWN
IN_DELTA = TargetState(exists=None, kind=DELTA, version="4")
IN_ICEBERG = TargetState(exists=None, kind=ICEBERG, version="17")
NOTHING = TargetState(exists=False, kind=ICEBERG)


def write(epoch: int, step: str = "Write", kind: str = DELTA, before: str = "") -> EpochWrite:
    return EpochWrite(step, f"writer of {step}", epoch, (f"{epoch}.table",), 3, kind, before)


def test_each_step_has_one_write_with_the_files_of_all_tasks() -> None:
    made = [RowsOfTask("B", "b0", 4), RowsOfTask("A", "a1", 2), RowsOfTask("A", "a0", 1)]
    states = {"A": IN_DELTA, "B": IN_ICEBERG}
    assert unwritten_after((), (), "c", 7, made, states) == (
        EpochWrite("A", writer_name("c", "A"), 7, ("a0", "a1"), 3, DELTA),
        EpochWrite("B", writer_name("c", "B"), 7, ("b0",), 4, ICEBERG, "17"),
    )


def test_no_write_is_noted_for_a_table_of_an_unknown_kind() -> None:
    made = [RowsOfTask("A", "a0", 1)]
    with pytest.raises(InvariantError):
        unwritten_after((), (), "c", 7, made, {"A": TargetState(exists=None)})


def test_an_epoch_without_rows_leaves_nothing() -> None:
    assert unwritten_after((), (), "c", 7, (), {}) == ()


def test_what_was_written_since_is_left_out_and_the_rest_comes_first() -> None:
    last = (write(5), write(6), write(6, "Other"))
    found = unwritten_after(
        last,
        [write(5), write(6, "Other")],
        "c",
        7,
        [RowsOfTask("Write", "f", 1)],
        {"Write": IN_DELTA},
    )
    assert [(each.step, each.epoch) for each in found] == [("Write", 6), ("Write", 7)]


def test_writers_differ_by_chain_and_step_and_stay_the_same() -> None:
    names = {writer_name(chain, step) for chain in ("c", "d") for step in ("A", "B")}
    assert len(names) == 4
    assert writer_name("c", "A") in names


def test_marks_differ_by_epoch() -> None:
    assert write(5).mark != write(6).mark


@pytest.mark.parametrize(
    ("before", "now", "mark", "expected"),
    [
        # Delta skips what it has
        (write(7), IN_DELTA, None, AGAIN),
        (write(7), TargetState(exists=False, kind=DELTA), None, AGAIN),
        # Iceberg is asked
        (write(7, kind=ICEBERG), IN_ICEBERG, True, WRITTEN),
        (write(7, kind=ICEBERG), IN_ICEBERG, False, AGAIN),
        (write(7, kind=ICEBERG), IN_ICEBERG, None, UNKNOWN),
        (write(7, kind=ICEBERG), NOTHING, None, AGAIN),
        # the table was replaced by one in another format
        (write(7, kind=ICEBERG), IN_DELTA, None, UNKNOWN),
        (write(7), IN_ICEBERG, False, UNKNOWN),
    ],
)
def test_what_became_of_a_write(
    before: EpochWrite, now: TargetState, mark: bool | None, expected: Outcome
) -> None:
    assert outcome_of(before, Found(now, mark)) == expected


@pytest.mark.parametrize(
    ("before", "marks", "expected"),
    [
        pytest.param("1", {"1": None, "2": "writer of Write-7"}, True, id="it is there"),
        pytest.param("1", {"1": None, "2": "writer of Write-6"}, False, id="another epoch is"),
        pytest.param("1", {"2": None}, None, id="old snapshots were removed"),
        pytest.param("", {}, False, id="the table is still empty"),
    ],
)
def test_snapshots_say_whether_they_have_an_epoch(
    before: str, marks: dict[str, str | None], expected: bool | None
) -> None:
    parents: dict[str, str | None] = dict(zip(marks, ["0", *marks], strict=False))
    begun = write(7, kind=ICEBERG, before=before).begun()
    assert has_mark(marks, parents, begun) is expected

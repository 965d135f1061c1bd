"""The table by which a later start decides about a write that was begun."""

import pytest

from beam_spark_runner.core.table_steps import MODES
from beam_spark_runner.recovery.begun_writes import (
    DELTA,
    FILES,
    ICEBERG,
    BegunWrite,
    Found,
    Outcome,
    TargetState,
    UnknownTableWriteError,
    advice_for,
    has_mark,
    outcome,
)

AGAIN, WRITTEN, UNKNOWN = Outcome.WRITE_AGAIN, Outcome.IS_WRITTEN, Outcome.UNKNOWN
NOTHING = TargetState(exists=False, kind=FILES, digest="none")
A = TargetState(exists=True, kind=FILES, files=2, digest="a")
B = TargetState(exists=True, kind=FILES, files=3, digest="b")
EMPTY_FOLDER = TargetState(exists=True, kind=FILES, digest="none")
NOT_LISTED = TargetState(exists=True, kind=FILES)
IN_DELTA = TargetState(exists=True, kind=DELTA, version="4")
IN_ICEBERG = TargetState(exists=True, kind=ICEBERG, version="17")
JDBC = TargetState(exists=None, kind="jdbc")
NO_TABLE = TargetState(exists=False)


def begun(before: TargetState) -> BegunWrite:
    return BegunWrite(fence=3, mark="m", schema="{}", rows=40, before=before)


@pytest.mark.parametrize(
    ("before", "now", "mark", "expected"),
    [
        # files: only the same listing shows that nothing was written
        (A, A, None, AGAIN),
        (A, B, None, UNKNOWN),
        (B, A, None, UNKNOWN),
        (A, NOTHING, None, AGAIN),
        (A, NOT_LISTED, None, UNKNOWN),
        (NOT_LISTED, NOT_LISTED, None, UNKNOWN),
        (NOT_LISTED, A, None, UNKNOWN),
        (NOTHING, NOTHING, None, AGAIN),
        (NOTHING, EMPTY_FOLDER, None, AGAIN),  # with _temporary
        (NOTHING, A, None, UNKNOWN),
        (EMPTY_FOLDER, A, None, UNKNOWN),
        # Delta counts a write once
        (IN_DELTA, IN_DELTA, None, AGAIN),
        (TargetState(exists=False, kind=DELTA), IN_DELTA, None, AGAIN),
        (IN_DELTA, TargetState(exists=False, kind=DELTA), None, AGAIN),
        # a table whose format was not known when the write began has no marks
        (NO_TABLE, IN_DELTA, None, UNKNOWN),
        (NO_TABLE, IN_ICEBERG, False, UNKNOWN),
        (NO_TABLE, A, None, UNKNOWN),
        (NO_TABLE, NO_TABLE, None, AGAIN),
        # Iceberg is asked
        (IN_ICEBERG, IN_ICEBERG, True, WRITTEN),
        (IN_ICEBERG, IN_ICEBERG, False, AGAIN),
        (IN_ICEBERG, IN_ICEBERG, None, UNKNOWN),
        # a table was replaced by one in another format
        (IN_DELTA, IN_ICEBERG, False, UNKNOWN),
        (IN_ICEBERG, A, None, UNKNOWN),
        (A, IN_DELTA, None, UNKNOWN),
        # nothing can be asked
        (JDBC, JDBC, None, UNKNOWN),
    ],
)
def test_an_append(
    before: TargetState, now: TargetState, mark: bool | None, expected: Outcome
) -> None:
    assert outcome("append", begun(before), Found(now, mark)) == expected


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "append"])
@pytest.mark.parametrize("now", [NOTHING, A, B, NOT_LISTED, IN_DELTA, IN_ICEBERG, JDBC])
def test_other_modes_replace_what_is_there(mode: str, now: TargetState) -> None:
    assert outcome(mode, begun(NOTHING), Found(now)) == AGAIN


@pytest.mark.parametrize(
    ("before", "marks", "parents", "expected"),
    [
        ("17", {"17": None, "18": "m"}, {"17": "16", "18": "17"}, True),
        ("17", {"18": "m"}, {"18": "17"}, True),
        ("17", {"17": None}, {"17": None}, False),
        ("17", {"17": None, "18": "x"}, {"17": None, "18": "17"}, False),
        ("17", {"18": "x"}, {"18": "17"}, None),  # ours may have been removed with it
        ("17", {}, {}, None),
        ("", {}, {}, False),
        ("", {"1": "x"}, {"1": None}, False),
        ("", {"2": "x"}, {"2": "1"}, None),
    ],
)
def test_marks_of_snapshots(
    before: str,
    marks: dict[str, str | None],
    parents: dict[str, str | None],
    expected: bool | None,
) -> None:
    of_iceberg = TargetState(exists=True, kind=ICEBERG, version=before)
    assert has_mark(marks, parents, begun(of_iceberg)) is expected


def test_the_error_says_where_to_look() -> None:
    text = str(UnknownTableWriteError("Write", "the table t", 40, 3, advice_for(A, B)))
    assert "Write appends 40 rows to the table t. Start 3 of this job" in text
    assert "there were 2 before the write, and there are 3 now" in text
    assert "the next start of the program, or of the job server, continues" in text
    assert "an empty --checkpoint_dir, or as another job of a job server" in text
    assert "Look whether it has them" in advice_for(JDBC, JDBC)
    assert "Look whether it has them" in advice_for(A, NOT_LISTED)

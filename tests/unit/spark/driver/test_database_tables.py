"""Tables of databases: what streams are refused, and what a start does after others."""

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.table_types import Column, schema_of
from beam_spark_runner.recovery.begun_writes import DELTA, JDBC
from beam_spark_runner.recovery.epoch_writes import (
    EpochWrite,
    TableDatabaseError,
    UnknownEpochWriteError,
)
from beam_spark_runner.spark.driver import database_tables
from beam_spark_runner.spark.driver.database import is_away
from beam_spark_runner.spark.driver.database_tables import DatabaseTable, database_table

WRITE = EpochWrite("Sink", "w", 7, ("f",), 3, JDBC)
RESTARTS = ConnectionError("FATAL: the database system is starting up")
URL = "jdbc:postgresql://db/shop?user=me&password=secret"


TABLE = {"to_regclass('shop.orders')": [("shop", "orders")]}


class Answers:
    """A database, and a transaction of it, that gives prepared answers.

    Args:
        answers: the rows of queries, by a part of their text; the first part that fits counts.
            An exception is raised.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = {**answers, **{key: TABLE[key] for key in TABLE if key not in answers}}
        self.executed: list[str] = []

    @contextlib.contextmanager
    def transaction(self) -> Iterator["Answers"]:
        yield self

    def execute(self, statement: str) -> None:
        self.executed.append(statement)
        self.query(statement)

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        for part, rows in self.answers.items():
            if part in statement:
                if isinstance(rows, Exception):
                    raise rows
                return list(rows)
        return []

    def has_executed(self, part: str) -> bool:
        return any(part in statement for statement in self.executed)


NEWEST = "SELECT epoch FROM"
COUNT = "SELECT count"


def opened(**changes: Any) -> Any:
    write = {
        "mode": "append",
        "options": {"url": URL, "dbtable": "shop.orders"},
        "keys": (),
        "partition_by": (),
        **changes,
    }
    return SimpleNamespace(
        write=SimpleNamespace(**write),
        step="Sink",
        schema=schema_of([Column("id", "long", True), *changes.pop("columns", ())]),
        session=SimpleNamespace(is_connect=changes.pop("is_connect", False)),
        save=mock.Mock(),
        create=mock.Mock(),
        reason_for=str,
    )


def table_of(found: Answers, **changes: Any) -> DatabaseTable:
    return DatabaseTable(opened(**changes), "shop.orders", found)


@pytest.fixture(autouse=True)
def _rows() -> Iterator[None]:
    with mock.patch.object(database_tables, "numbered_rows_of_epoch"):
        yield


def append(table: DatabaseTable) -> None:
    places: Any = None
    table.append(WRITE, places)


def test_an_epoch_is_moved_and_noted_in_one_transaction() -> None:
    found = Answers({NEWEST: [("6",)], COUNT: [("3",)]})
    table = table_of(found)
    append(table)
    moved = [
        at
        for at, each in enumerate(found.executed)
        if each.startswith('INSERT INTO "shop"."orders"')
    ]
    noted = [
        at
        for at, each in enumerate(found.executed)
        if "beam_spark_epochs" in each and ", 7, now()" in each
    ]
    assert noted == [moved[0] + 1]
    assert found.executed[-1].startswith("TRUNCATE")
    table.close()
    assert found.executed[-1].startswith("DROP TABLE")


def test_an_epoch_that_another_driver_has_added_is_not_added_again() -> None:
    found = Answers({NEWEST: [("7",)], COUNT: [("3",)]})
    append(table_of(found))
    assert not found.has_executed("SET epoch = 7")


def test_rows_that_a_crash_of_the_database_has_removed_are_written_again() -> None:
    found = Answers({NEWEST: [("6",)], COUNT: [("2",)]})
    with pytest.raises(TableDatabaseError, match="2 of 3 rows"):
        append(table_of(found))
    assert not found.has_executed("SET epoch = 7")


@pytest.mark.parametrize(("newest", "expected"), [("6", False), ("7", True), ("8", True)])
def test_the_database_says_which_epoch_it_has(newest: str, expected: bool) -> None:
    found = Answers({"SELECT 1 WHERE": [("1",)], NEWEST: [(newest,)]})
    assert table_of(found).is_written(WRITE) is expected


def test_a_database_without_a_table_of_epochs_has_none() -> None:
    assert not table_of(Answers({})).is_written(WRITE)


def test_a_database_that_restarts_is_asked_again_later() -> None:
    found = Answers({"SELECT 1 WHERE": RESTARTS})
    with pytest.raises(TableDatabaseError, match=r"cannot be written now: .* is starting up"):
        table_of(found).is_written(WRITE)
    table = table_of(Answers({NEWEST: [("6",)], COUNT: [("3",)]}))
    table.opened.save.side_effect = RESTARTS  # type: ignore[attr-defined]
    with pytest.raises(TableDatabaseError):
        append(table)


def test_an_error_that_stays_is_raised_as_it_is() -> None:
    found = Answers({"SELECT 1 WHERE": ValueError("permission denied for table")})
    with pytest.raises(ValueError, match="permission denied"):
        table_of(found).is_written(WRITE)


def test_a_table_of_another_format_does_not_say_what_it_had() -> None:
    with pytest.raises(UnknownEpochWriteError, match="a table of delta, and is one of jdbc"):
        table_of(Answers({})).is_written(WRITE._replace(kind=DELTA))


def test_what_is_left_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = Answers({NEWEST: [("6",)], COUNT: [("3",)], "DROP TABLE": RESTARTS})
    table = table_of(found)
    append(table)
    table.close()
    assert "remains: FATAL" in caplog.text


NESTED: Any = {"type": "struct", "fields": []}
UNIQUE = "i.indisunique"
SCHEMA = "has_schema_privilege"


@pytest.mark.parametrize(
    ("changes", "answers", "problem"),
    [
        ({"is_connect": True}, {}, "not through Spark Connect"),
        (
            {"options": {"url": "jdbc:mysql://db/shop", "dbtable": "t"}},
            {},
            "only PostgreSQL .* of the kind mysql",
        ),
        ({"options": {"url": URL, "dbtable": "(SELECT 1) t"}}, {}, "must be the name of a table"),
        ({"options": {"url": URL}}, {}, "must be the name of a table"),
        ({"partition_by": ("id",)}, {}, "partition_by has no effect"),
        ({"columns": [Column("BEAM_SPARK_ROW", "long", True)]}, {}, "rename it"),
        (
            {"columns": [Column("s", NESTED, True), Column("i", "interval day", True)]},
            {},
            "the columns s, i into a database",
        ),
        ({"keys": ("id",)}, {"to_regclass('shop.orders')": []}, r"create it .* PRIMARY KEY \(id\)"),
        ({"keys": ("id",)}, {UNIQUE: [("1", "id"), ("1", "day")]}, "no unique index of exactly"),
        ({}, {SCHEMA: [("shop", "f")]}, "may not create tables in the schema shop"),
        ({}, {}, "there is no schema"),
        ({}, {SCHEMA: RESTARTS}, "cannot look at the table shop.orders of the database now"),
    ],
)
def test_refused_tables(changes: dict[str, Any], answers: dict[str, Any], problem: str) -> None:
    found = Answers({SCHEMA: [], **answers})
    here = mock.patch.object(database_tables, "JavaDatabase", return_value=found)
    with here, pytest.raises(TableError, match=problem) as raised:
        database_table(opened(**changes))
    assert "secret" not in str(raised.value)
    assert str(raised.value).startswith("Sink: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Connection to 127.0.0.1:5432 refused. Check that the hostname is correct", True),
        ("FATAL: terminating connection due to administrator command", True),
        ("An I/O error occurred while sending to the backend.", True),
        ("ERROR: duplicate key value violates unique constraint", False),
        ("FATAL: password authentication failed for user", False),
    ],
)
def test_what_may_be_over_soon(text: str, expected: bool) -> None:
    assert is_away(RuntimeError(f"org.postgresql.util.PSQLException: {text}")) is expected

"""What the statements do that move the rows of an epoch, in SQLite, which has them, too."""

import sqlite3
from collections.abc import Iterator

import pytest

from beam_spark_runner.spark.driver.epoch_sql import ATTEMPT, ROW, EpochSql, identifier, text

MINE, OTHER = "mine", "other"


def sql_of(*keys: str, columns: tuple[str, ...] = ("id", 'odd "name"')) -> EpochSql:
    return EpochSql(schema="main", name="t", columns=columns, keys=keys, writer="w", start="s")


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE t (id INTEGER, "odd ""name""" TEXT)')
    columns = "writer text PRIMARY KEY, target text, epoch integer, written_at"
    connection.execute(f"CREATE TABLE {sql_of().epochs} ({columns})")
    connection.execute(f"INSERT INTO {sql_of().epochs} VALUES ('w', 't', 0, 0), ('v', 't', 0, 0)")
    columns = f'id INTEGER, "odd ""name""" TEXT, {ROW} INTEGER, {ATTEMPT} TEXT'
    connection.execute(f"CREATE TABLE {sql_of().waiting} ({columns})")
    yield connection
    connection.close()


def wait(database: sqlite3.Connection, *rows: tuple[int, str, int, str]) -> None:
    database.executemany(f"INSERT INTO {sql_of().waiting} VALUES (?, ?, ?, ?)", rows)


def rows_of(database: sqlite3.Connection) -> list[tuple[int, str]]:
    return database.execute("SELECT * FROM t ORDER BY 1, 2").fetchall()


def test_what_a_task_has_stored_twice_is_written_once(database: sqlite3.Connection) -> None:
    wait(database, (1, "a", 10, MINE), (1, "a", 10, MINE), (1, "a", 11, MINE), (2, "b", 12, MINE))
    assert database.execute(sql_of().count(MINE)).fetchone() == (3,)
    database.execute(sql_of().move(MINE))
    assert rows_of(database) == [(1, "a"), (1, "a"), (2, "b")]


def test_rows_of_other_attempts_are_left_alone(database: sqlite3.Connection) -> None:
    wait(database, (1, "a", 10, MINE), (1, "a", 10, OTHER), (2, "b", 11, OTHER))
    assert database.execute(sql_of().count(MINE)).fetchone() == (1,)
    database.execute(sql_of().move(MINE))
    assert rows_of(database) == [(1, "a")]


def test_the_last_row_of_a_key_replaces_the_others(database: sqlite3.Connection) -> None:
    database.execute("CREATE UNIQUE INDEX i ON t (id)")
    database.execute("INSERT INTO t VALUES (1, 'old'), (3, 'old')")
    wait(database, (1, "new", 12, MINE), (1, "older", 11, MINE), (2, "b", 10, MINE))
    wait(database, (1, "new", 12, MINE), (1, "other", 13, OTHER))
    database.execute(sql_of("id").move(MINE))
    assert rows_of(database) == [(1, "new"), (2, "b"), (3, "old")]


def test_rows_that_have_only_keys(database: sqlite3.Connection) -> None:
    database.execute("CREATE UNIQUE INDEX i ON t (id)")
    database.execute("INSERT INTO t VALUES (1, 'old')")
    wait(database, (1, "", 10, MINE), (2, "", 11, MINE))
    database.execute(sql_of("id", columns=("id",)).move(MINE))
    assert rows_of(database) == [(1, "old"), (2, None)]


def test_the_epoch_of_one_writer_is_noted(database: sqlite3.Connection) -> None:
    database.create_function("now", 0, lambda: 1)
    database.execute(sql_of().note(7))
    assert database.execute(sql_of().newest_epoch()).fetchall() == [(7,)]
    rows = database.execute(f"SELECT * FROM {sql_of().epochs} ORDER BY writer").fetchall()
    assert rows == [("v", "t", 0, 0), ("w", sql_of().target, 7, 1)]


def test_an_epoch_is_noted_though_someone_has_removed_the_writer(
    database: sqlite3.Connection,
) -> None:
    database.create_function("now", 0, lambda: 1)
    database.execute(f"DELETE FROM {sql_of().epochs}")
    database.execute(sql_of().note(7))
    assert database.execute(sql_of().newest_epoch()).fetchall() == [(7,)]


def test_names_and_texts_are_quoted() -> None:
    assert identifier('a"b') == '"a""b"'
    assert text("it's") == "'it''s'"
    assert text("a\\'b") == " E'a\\\\''b'"


def test_tables_of_rows_belong_to_one_writer_of_one_table() -> None:
    names = {
        EpochSql(schema=s, name="t", columns=("id",), keys=(), writer=w, start="s").waiting
        for s in "ab"
        for w in "vw"
    }
    assert len(names) == 4
    assert all(len(name) < 70 for name in names)

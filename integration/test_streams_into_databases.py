"""Streams into PostgreSQL whose driver is killed, or whose database is, around an epoch's write."""

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration.postgresql import PostgreSQL, postgresql
from integration.stream_database_driver import COUNT, EXECUTOR, MOMENTS, ROWS
from integration.streams import KEYS
from tests.cli.programs import Ended, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_SCRIPT = """
    from integration.stream_database_driver import main
    main(OPTIONS[1:], {!r}, {!r}, {!r}, {!r}, {!r})
    """
_CONTROL = """
import sys
from pathlib import Path
from integration.postgresql import PostgreSQL
server = PostgreSQL(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), "")
getattr(server, sys.argv[5])()
"""
PASSWORD = "correct-horse-battery"


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """A server, with a user who may do no more than a stream needs."""
    with postgresql("scram-sha-256") as running:
        running.query(f"CREATE ROLE stream LOGIN PASSWORD '{PASSWORD}'")
        running.query("CREATE SCHEMA shop AUTHORIZATION stream")
        yield running


class Stream:
    """A stream into a table.

    Args:
        server: that has the table.
        folder: for all else.
        arguments: further ones of ``WriteToSpark``.
    """

    def __init__(self, server: PostgreSQL, folder: Path, **arguments: Any) -> None:
        self._server, self._folder, self._arguments = server, folder, arguments
        self._starts = 0

    def start(self, moment: str = "", nth: int = 0, command: Sequence[str] = ()) -> Ended:
        """Run the program until it is killed, or done; it has left the password nowhere."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        access = {"url": self._server.url, "dbtable": 'shop."Numbers"', "user": "stream"}
        access["driver"] = "org.postgresql.Driver"
        script = _SCRIPT.format(access, self._arguments, moment, nth, command)
        program = Program(
            folder,
            script,
            f"--checkpoint_dir={self._folder / 'checkpoints'}",
            "--batch_interval_millis=100",
            "--parallelism=2",
            PASSWORD=PASSWORD,
        )
        was_killed = bool(moment) and moment != EXECUTOR and not command
        ended = program.end(600, jvm_was_killed=was_killed)
        assert PASSWORD not in ended.out + ended.err
        for file in (self._folder / "checkpoints").rglob("*"):
            assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()
        return ended

    def rows(self) -> list[tuple[int, int]]:
        """Return ids and keys of all rows, in order."""
        found = self._server.query('SELECT id, key FROM shop."Numbers" ORDER BY id')
        return [(int(id_), int(key)) for id_, _, key in (row.partition("|") for row in found)]


def tables_of(server: PostgreSQL) -> list[str]:
    """Return the tables of the schema."""
    return server.query(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND "
        "relnamespace = 'shop'::regnamespace ORDER BY 1"
    )


@pytest.mark.parametrize("moment", MOMENTS)
def test_drivers_that_are_killed(server: PostgreSQL, tmp_path: Path, moment: str) -> None:
    """The first write creates the table, and the second one adds to it: a start dies in either."""
    stream = Stream(server, tmp_path)
    for nth in (1, 2):
        killed = stream.start(moment, nth)
        assert killed.code == -signal.SIGKILL, killed.err
    ended = stream.start()
    assert ended.code == 0, ended.err
    assert stream.rows() == ROWS
    assert tables_of(server) == ["Numbers", "beam_spark_epochs"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_database_that_crashes(server: PostgreSQL, tmp_path: Path, moment: str) -> None:
    """The program waits for it, and loses nothing. In the midst of the write, it is down."""
    stream = Stream(server, tmp_path)
    at = (server.tools, server.folder, server.user, server.port)
    control = [sys.executable, "-c", _CONTROL, *map(str, at)]
    ended = stream.start(moment, 2, control)
    assert ended.code == 0, ended.err
    assert ("cannot be written now" in ended.err) is (moment not in ("committed", "written"))
    assert stream.rows() == ROWS
    assert tables_of(server) == ["Numbers", "beam_spark_epochs"]


@pytest.mark.cluster
def test_an_executor_that_is_killed(server: PostgreSQL, tmp_path: Path) -> None:
    """Spark runs its task again."""
    stream = Stream(server, tmp_path)
    ended = stream.start(EXECUTOR, 2)
    assert ended.code == 0, ended.err
    assert (tmp_path / "start-1" / "executor-was-killed").exists()
    assert stream.rows() == ROWS


def test_rows_replace_those_with_their_keys(server: PostgreSQL, tmp_path: Path) -> None:
    columns = "id bigint, key bigint PRIMARY KEY, last bigint NOT NULL"
    server.query(f'CREATE TABLE shop."Numbers" ({columns})')
    server.query('ALTER TABLE shop."Numbers" OWNER TO stream')
    stream = Stream(server, tmp_path, keys=["key"])
    killed = stream.start("moved", 2)
    assert killed.code == -signal.SIGKILL, killed.err
    ended = stream.start()
    assert ended.code == 0, ended.err
    assert sorted(stream.rows()) == [(1000 * key + COUNT - 1, key) for key in range(KEYS)]

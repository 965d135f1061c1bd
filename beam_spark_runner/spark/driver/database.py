"""A database of JDBC, to which the driver talks through Spark's JVM, with Spark's own driver."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.java_errors import text_of_error

_READ_COMMITTED = 2  # java.sql.Connection.TRANSACTION_READ_COMMITTED
_GOES_AWAY = re.compile(r"08\w{3}|57P0\d|53300|55P03|40001|40P01")
"""SQLSTATEs of lost connections and restarts, of too many connections, of locks that others hold,
and of transactions that were rolled back to let another one end."""
_WORDS_OF_GOING_AWAY = re.compile(
    r"[Cc]onnection to \S+ (was )?refused|[Cc]onnection attempt failed"
    r"|Couldn't connect to the database|I/O error occurred while sending to the backend"
    r"|[Cc]onnection has been closed"
    r"|terminating connection (due to|because of)"
    r"|the database system is (starting up|shutting down|in recovery|not accepting)"
    r"|sorry, too many clients already|remaining connection slots are reserved"
)
"""What is left of such an error of a Spark task: its text, in English."""
LOCKED = "55P03"


class Transaction(Protocol):
    """A transaction. Identifiers and texts in its statements are quoted already."""

    def execute(self, statement: str) -> None:
        """Execute a statement."""
        ...

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a query; all values as text, and NULL as None."""
        ...


class Database(Protocol):
    """Where a table is."""

    def transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """Begin a transaction, which is committed if the block ends, and rolled back if it fails.

        Raises:
            Exception: the database refuses a statement, or cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class _JavaTransaction:
    connection: Any

    def execute(self, statement: str) -> None:
        with self._made() as java:
            java.execute(statement)

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        with self._made() as java:
            found = java.executeQuery(statement)
            numbers = range(1, found.getMetaData().getColumnCount() + 1)
            rows = []
            while found.next():
                rows.append(tuple(found.getString(number) for number in numbers))
            return rows

    @contextlib.contextmanager
    def _made(self) -> Iterator[Any]:
        java = self.connection.createStatement()
        try:
            yield java
        finally:
            with contextlib.suppress(Py4JError):  # its connection may be gone
                java.close()


@dataclass(frozen=True, slots=True)
class JavaDatabase:
    """See ``Database``. Each transaction has another connection.

    Attributes:
        options: of Spark's source ``jdbc``, with ``url`` and ``dbtable``.
    """

    options: Mapping[str, str]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """See ``Database``."""
        connection = self._connect()
        try:
            connection.setTransactionIsolation(_READ_COMMITTED)
            connection.setAutoCommit(False)
            yield _JavaTransaction(connection)
            connection.commit()
        finally:
            with contextlib.suppress(Py4JError):  # the database rolls back what was not committed
                connection.rollback()
            with contextlib.suppress(Py4JError):
                connection.close()

    def _connect(self) -> Any:
        """Return a ``java.sql.Connection``, as Spark's own source makes it.

        Source: Spark ``org.apache.spark.sql.jdbc.JdbcDialect.createConnectionFactory``.
        """
        java: Any = pyspark_internals.jvm()
        spark_sql = java.org.apache.spark.sql
        given = java.PythonUtils.toScalaMap(dict(self.options))
        checked = spark_sql.execution.datasources.jdbc.JDBCOptions(given)
        dialect = spark_sql.jdbc.JdbcDialects.get(checked.url())
        return dialect.createConnectionFactory(checked).apply(-1)  # of no partition


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of an error of a ``Transaction``; empty: it has none."""
    if isinstance(error, Py4JJavaError):
        with contextlib.suppress(Py4JError, OSError):  # not each exception of Java has one
            return str(error.java_exception.getSQLState() or "")
    return ""


def reason_of_database(error: BaseException) -> str:
    """Return what a database has answered to a ``Transaction``; empty: it is another error."""
    if not state_of(error):
        return ""
    assert isinstance(error, Py4JJavaError)
    with contextlib.suppress(Py4JError, OSError):
        return str(error.java_exception.getMessage())
    return ""


def is_away(error: BaseException) -> bool:
    """Whether the same work may succeed once a database answers again, or others have ended.

    Args:
        error: of a ``Transaction``, or of a Spark job that writes into the database.
    """
    if state := state_of(error):
        return _GOES_AWAY.fullmatch(state) is not None
    return _WORDS_OF_GOING_AWAY.search(text_of_error(error)) is not None

"""Tables of a database that get the rows of a streaming pipeline, one transaction for each epoch.

Each of Spark's tasks has its transaction, and may run twice: they write the rows of an epoch into a
table in which they wait. One transaction of the driver moves them, and notes the epoch.
"""

import contextlib
import logging
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.table_steps import database_of
from beam_spark_runner.core.table_types import SparkType, columns_of
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.recovery.begun_writes import JDBC, TargetState
from beam_spark_runner.recovery.epoch_writes import (
    EpochWrite,
    TableDatabaseError,
    UnknownEpochWriteError,
    changed_kind,
)
from beam_spark_runner.spark.driver.database import (
    LOCKED,
    Database,
    JavaDatabase,
    Transaction,
    is_away,
    reason_of_database,
    state_of,
)
from beam_spark_runner.spark.driver.epoch_rows import numbered_rows_of_epoch
from beam_spark_runner.spark.driver.epoch_sql import (
    ATTEMPT,
    OWN_COLUMNS,
    ROW,
    EpochSql,
    at_once,
    find_schema,
    find_table,
    find_unique_keys,
    within,
)
from beam_spark_runner.spark.driver.table_reasons import without_secrets
from beam_spark_runner.spark.driver.table_writes import OpenWrite

_LOGGER = logging.getLogger(__name__)
_NAME = re.compile(r'(?:(?P<schema>"(?:[^"]|"")+"|[^\W\d][\w$]*)\.)?("(?:[^"]|"")+"|[^\W\d][\w$]*)')
_LONGEST_WAIT_S = 60  # for a lock, and for the next statement of a transaction


@dataclass(slots=True)
class DatabaseTable:
    """See ``TableToAppend``.

    Attributes:
        opened: the write, which has passed its checks.
        name: of the table, as the user has it.
        database: where it is.
        ready: the statements for the writers of this start, whose tables there are.
    """

    opened: OpenWrite
    name: str
    database: Database
    ready: dict[str, EpochSql] = field(default_factory=dict)

    def state(self) -> TargetState:
        """See ``TableToAppend``. The database is not asked: it has the newest epoch."""
        return TargetState(exists=None, kind=JDBC)

    def is_written(self, write: EpochWrite) -> bool:
        """See ``TableToAppend``."""
        if write.kind != JDBC:
            reason = changed_kind(write.kind, JDBC)
            raise UnknownEpochWriteError(
                write.step, str(self), write.rows, write.epoch, write.mark, reason
            )
        with self._as_away(), self._transaction() as transaction:
            sql = self._sql(write, transaction)
            if sql is None or not transaction.query(sql.find_epochs()):
                return False
            return _newest(transaction.query(sql.newest_epoch())) >= write.epoch

    def append(self, write: EpochWrite, places: ShardLocations) -> None:
        """See ``TableToAppend``.

        Raises:
            TableDatabaseError: the database does not answer now, or is too busy.
        """
        with self._as_away():
            sql = self._prepared(write)
            attempt = uuid.uuid4().hex
            frame = numbered_rows_of_epoch(self.opened, write, places, ROW)
            frame = frame.selectExpr("*", f"'{attempt}' AS {ATTEMPT}")
            self.opened.save(frame, "append", {"dbtable": sql.waiting})
            self._move(sql, attempt, write)
            self._unless_locked(sql.waiting, "TRUNCATE")

    def close(self) -> None:
        """See ``TableToAppend``."""
        for sql in self.ready.values():
            try:
                self._unless_locked(sql.waiting, "DROP TABLE")
            except Exception as error:
                # The next start drops it. Nothing that has happened until now depends on it.
                _LOGGER.info("%s remains: %s", sql.waiting, self.reason_for(error))
        self.ready.clear()

    def reason_for(self, error: BaseException) -> str:
        """See ``TableToAppend``."""
        reason = reason_of_database(error)
        if reason:
            return without_secrets(reason, self.opened.write.options)
        return self.opened.reason_for(error)

    @override
    def __str__(self) -> str:
        return f"the table {self.name} of the database"

    @contextlib.contextmanager
    def _as_away(self) -> Iterator[None]:
        """Raise a TableDatabaseError if the same may succeed later."""
        try:
            yield
        except Exception as error:
            if isinstance(error, TableDatabaseError) or not is_away(error):
                raise
            raise TableDatabaseError(str(self), self.reason_for(error)) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self.database.transaction() as transaction:
            for statement in within(_LONGEST_WAIT_S):
                transaction.execute(statement)
            yield transaction

    def _sql(self, write: EpochWrite, transaction: Transaction) -> EpochSql | None:
        """Return the statements for a write; None: there is no table yet."""
        found = transaction.query(find_table(self.name))
        if not found:
            return None
        ((schema, name),) = found
        return EpochSql(
            schema=schema or "",
            name=name or "",
            columns=tuple(each.name for each in columns_of(self.opened.schema)),
            keys=self.opened.write.keys,
            writer=write.writer,
            start=uuid.uuid4().hex[:8],
        )

    def _prepared(self, write: EpochWrite) -> EpochSql:
        """Create the tables that are missing, once for each start."""
        if write.writer in self.ready:
            return self.ready[write.writer]
        with self._transaction() as transaction:
            sql = self._sql(write, transaction)
        if sql is None:
            self.opened.create()
        with self._transaction() as transaction:
            sql = self._sql(write, transaction)
            if sql is None:
                raise TableError(f"{self} was removed", self.opened.step)
            left = [str(name) for (name,) in transaction.query(sql.find_waiting())]
            create, *others = sql.create_tables()
            transaction.query(create)
            for statement in others:
                transaction.execute(statement)
        for name in left:  # of drivers that were killed
            self._unless_locked(sql.waiting_of(name), "DROP TABLE")
        self.ready[write.writer] = sql
        return sql

    def _move(self, sql: EpochSql, attempt: str, write: EpochWrite) -> None:
        with self._transaction() as transaction:
            if _newest(transaction.query(sql.lock_newest_epoch())) >= write.epoch:
                return  # another driver was faster
            ((count,),) = transaction.query(sql.count(attempt))
            if int(count or 0) != write.rows:
                raise TableDatabaseError(
                    str(self),
                    f"{count} of {write.rows} rows are left after the database has crashed",
                )
            transaction.execute(sql.move(attempt))
            transaction.execute(sql.note(write.epoch))

    def _unless_locked(self, table: str, statement: str) -> None:
        """Change a table in which rows wait, unless a task still writes into it."""
        try:
            with self._transaction() as transaction:
                for each in at_once(table, statement):
                    transaction.execute(each)
        except Exception as error:
            if state_of(error) != LOCKED:
                raise
            _LOGGER.info("%s stays as it is: a task of Spark still writes into it", table)


def _newest(found: list[tuple[str | None, ...]]) -> int:
    return int(found[0][0] or 0) if found else 0


def database_table(opened: OpenWrite) -> DatabaseTable:
    """Return the table of a database that a step of a streaming pipeline writes.

    Raises:
        TableError: it cannot be written by epoch.
    """
    write, step = opened.write, opened.step
    url, name = database_of(write.options)
    if opened.session.is_connect:
        raise TableError(
            "a streaming pipeline writes tables of databases only in its own Spark, and not "
            "through Spark Connect, which has no transactions",
            step,
        )
    if not url.startswith("jdbc:postgresql:"):
        kind = url.removeprefix("jdbc:").partition(":")[0] or "unknown"
        raise TableError(
            "of databases, a streaming pipeline writes only PostgreSQL (a url that begins with "
            f"jdbc:postgresql:), and this is one of the kind {kind}",
            step,
        )
    if (match := _NAME.fullmatch(name)) is None:
        raise TableError(
            "the option dbtable must be the name of a table, such as orders or shop.orders, but "
            f"it is {name!r}",
            step,
        )
    if write.partition_by:
        raise TableError("partition_by has no effect on a table of a database: leave it out", step)
    table = DatabaseTable(opened, name, JavaDatabase(write.options))
    _check_columns(table)
    try:
        with table.database.transaction() as transaction:
            problem = _problem_of(table, transaction, match["schema"] or "")
    except Exception as error:
        reason = table.reason_for(error)
        raise TableError(f"Spark cannot look at {table} now: {reason}", step) from error
    if problem:
        raise TableError(problem, step)
    return table


def _check_columns(table: DatabaseTable) -> None:
    columns = columns_of(table.opened.schema)
    own = [each.name for each in columns if each.name.lower() in OWN_COLUMNS]
    if own:
        raise TableError(
            f"the column {own[0]} is one of the runner's: rename it", table.opened.step
        )
    unknown = [each.name for each in columns if _is_unknown(each.type)]
    if unknown:
        raise TableError(
            f"Spark cannot write the columns {', '.join(unknown)} into a database: it has no "
            "structs, maps or intervals there",
            table.opened.step,
        )


def _is_unknown(type_: SparkType) -> bool:
    while not isinstance(type_, str) and type_["type"] == "array":
        type_ = type_["elementType"]
    return not isinstance(type_, str) or type_.startswith("interval")


def _problem_of(table: DatabaseTable, transaction: Transaction, schema: str) -> str:
    """Return why a table cannot be written; empty: it can be."""
    keys = table.opened.write.keys
    primary_key = f"PRIMARY KEY ({', '.join(keys)})"
    found = transaction.query(find_table(table.name))
    if not found and keys:
        return (
            f"{table} does not exist, and rows replace others only in a table with a unique index: "
            f"create it first, with {primary_key}"
        )
    if keys:
        ((schema_of_table, name),) = found
        indexes: dict[str | None, set[str | None]] = {}
        for index, column in transaction.query(find_unique_keys(schema_of_table or "", name or "")):
            indexes.setdefault(index, set()).add(column)
        if set(keys) not in indexes.values():
            return (
                f"{table} has no unique index of exactly the columns {', '.join(keys)}, by which "
                f"rows could replace others: add it, such as {primary_key}"
            )
    if found:
        schema = f'"{str(found[0][0]).replace(chr(34), chr(34) * 2)}"'
    schemas = transaction.query(find_schema(schema))
    if not schemas:
        return f"there is no schema {schema or 'in the search_path'} in the database"
    if schemas[0][1] != "t":
        return (
            f"the user of the database may not create tables in the schema {schemas[0][0]}, where "
            "the runner has the table of epochs, and one in which rows wait: GRANT CREATE ON SCHEMA"
        )
    return ""

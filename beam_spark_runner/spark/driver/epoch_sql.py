"""The SQL, for PostgreSQL, by which the rows of an epoch get into a table exactly once."""

import hashlib
from dataclasses import dataclass

EPOCHS = "beam_spark_epochs"
"""The table with the newest epoch of each writer. It is in the schema of the written table."""
ROW, ATTEMPT = "beam_spark_row", "beam_spark_attempt"
"""Columns of rows that wait: the number of a row in its epoch, and who has stored it."""
OWN_COLUMNS = (ROW, ATTEMPT)
_ROWS = "beam_spark_rows"
_NTH = "beam_spark_nth"
_TABLES_LOCK = 0x6265616D
"""Of ``pg_advisory_xact_lock``: two transactions that create one table would fail."""


def identifier(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Quote a text, as a literal."""
    quoted = value.replace("'", "''")
    # Whether a backslash is one depends on a setting of the session, except in this form.
    return f" E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in quoted else f"'{quoted}'"


def within(seconds: int) -> tuple[str, ...]:
    """Return statements that limit a transaction: how long it waits for locks, and may be idle.

    So a transaction neither waits forever for one whose machine is lost, nor has others wait. It is
    durable once it has ended, also where the database's own default is that it is so later.
    """
    return (
        f"SET LOCAL lock_timeout = '{seconds}s'",
        f"SET LOCAL idle_in_transaction_session_timeout = '{seconds}s'",
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'",
    )


def find_table(name: str) -> str:
    """Return a query for the schema and the name of a table, by what a user calls it."""
    return (
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.oid = to_regclass({text(name)})"
    )


def find_schema(name: str) -> str:
    """Return a query for a schema in which a table would be created; empty: the current one."""
    schema = f"to_regnamespace({text(name)})::text" if name else "quote_ident(current_schema())"
    return (
        f"SELECT n.nspname, has_schema_privilege(n.oid, 'CREATE') FROM pg_namespace n "
        f"WHERE quote_ident(n.nspname) = {schema}"
    )


def find_unique_keys(schema: str, name: str) -> str:
    """Return a query for the columns of unique indexes of a table: a row for each column."""
    return (
        "SELECT i.indexrelid::text, a.attname FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
        "AND array_position(i.indkey, a.attnum) < i.indnkeyatts "
        f"WHERE n.nspname = {text(schema)} AND c.relname = {text(name)} AND i.indisunique "
        "AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSql:
    """The statements for one writer of one table.

    Attributes:
        schema: of the table.
        name: of the table.
        columns: the names of the columns that are written.
        keys: those by which rows replace others; empty: rows are added.
        writer: the name of the writer.
        start: tells the rows that wait from those of earlier starts.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    writer: str
    start: str

    @property
    def target(self) -> str:
        """The table."""
        return f"{identifier(self.schema)}.{identifier(self.name)}"

    @property
    def epochs(self) -> str:
        """The table of epochs."""
        return f"{identifier(self.schema)}.{EPOCHS}"

    @property
    def waiting(self) -> str:
        """The table in which rows wait for the transaction that moves them."""
        return self.waiting_of(f"{self._prefix}{self.start}")

    def waiting_of(self, name: str) -> str:
        """Return a table of ``find_waiting``, quoted."""
        return f"{identifier(self.schema)}.{identifier(name)}"

    @property
    def _prefix(self) -> str:
        digest = hashlib.blake2b(f"{self.target} {self.writer}".encode(), digest_size=6).hexdigest()
        return f"{_ROWS}_{digest}_"

    def find_waiting(self) -> str:
        """Return a query for the names of the tables in which rows of this writer wait."""
        return (
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = {text(self.schema)} "
            f"AND left(c.relname, {len(self._prefix)}) = {text(self._prefix)}"
        )

    def create_tables(self) -> tuple[str, ...]:
        """Return statements that create the runner's tables, and the row of this writer."""
        columns = ", ".join(map(identifier, self.columns))
        return (
            f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})",
            f"CREATE TABLE IF NOT EXISTS {self.epochs} (writer text PRIMARY KEY, target text "
            "NOT NULL, epoch bigint NOT NULL, written_at timestamptz NOT NULL)",
            # What a crash of the database removes from it, Spark writes again.
            f"CREATE UNLOGGED TABLE {self.waiting} AS SELECT {columns}, 0::bigint AS {ROW}, "
            f"''::text AS {ATTEMPT} FROM {self.target} WITH NO DATA",
            *(
                f"ALTER TABLE {self.waiting} ALTER {identifier(key)} SET NOT NULL"
                for key in self.keys
            ),
            f"INSERT INTO {self.epochs} VALUES ({text(self.writer)}, {text(self.target)}, 0, now())"
            " ON CONFLICT (writer) DO NOTHING",
        )

    def find_epochs(self) -> str:
        """Return a query that has a row if there is a table of epochs."""
        return f"SELECT 1 WHERE to_regclass({text(self.epochs)}) IS NOT NULL"

    def newest_epoch(self) -> str:
        """Return a query for the newest epoch of which the table has the rows."""
        return f"SELECT epoch FROM {self.epochs} WHERE writer = {text(self.writer)}"

    def lock_newest_epoch(self) -> str:
        """Return the same, which waits for other transactions that add an epoch."""
        return f"{self.newest_epoch()} FOR UPDATE"

    def count(self, attempt: str) -> str:
        """Return a query for the number of the rows that wait."""
        return f"SELECT count(DISTINCT {ROW}) FROM {self.waiting} WHERE {ATTEMPT} = {text(attempt)}"

    def move(self, attempt: str) -> str:
        """Return the statement that writes the rows that wait into the table.

        A row that several attempts of a task have stored is written once. Of rows with the same
        keys, the last one is.
        """
        columns = ", ".join(map(identifier, self.columns))
        keys = ", ".join(map(identifier, self.keys))
        others = [identifier(each) for each in self.columns if each not in self.keys]
        sets = ", ".join(f"{each} = excluded.{each}" for each in others)
        # In the order of the keys, two streams lock the rows that both write in the same order.
        order = f" ORDER BY {keys}" if keys else ""
        conflict = f" ON CONFLICT ({keys}) DO" if keys else ""
        conflict += (f" UPDATE SET {sets}" if sets else " NOTHING") if keys else ""
        return (
            f"INSERT INTO {self.target} ({columns}) SELECT {columns} FROM (SELECT {columns}, "
            f"row_number() OVER (PARTITION BY {keys or ROW} ORDER BY {ROW} DESC) AS {_NTH} "
            f"FROM {self.waiting} WHERE {ATTEMPT} = {text(attempt)}) AS numbered "
            f"WHERE {_NTH} = 1{order}{conflict}"
        )

    def note(self, epoch: int) -> str:
        """Return the statement that notes that the table has the rows of an epoch."""
        values = f"{text(self.writer)}, {text(self.target)}, {epoch}, now()"
        return (
            f"INSERT INTO {self.epochs} VALUES ({values}) ON CONFLICT (writer) DO UPDATE SET "
            "target = excluded.target, epoch = excluded.epoch, written_at = excluded.written_at"
        )


def at_once(table: str, statement: str) -> tuple[str, str]:
    """Return statements that change a table in which rows wait, or fail if a task still writes.

    A task whose machine is lost may keep its transaction open for hours.

    Args:
        table: the table, quoted.
        statement: ``TRUNCATE`` or ``DROP TABLE``.
    """
    return f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE NOWAIT", f"{statement} {table}"

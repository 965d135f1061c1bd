"""DataFrames that read what ``ReadFromSpark`` names, in the session that has the tables."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.table_steps import FRAMES, WITHOUT_TYPES, TableRead
from beam_spark_runner.core.table_types import (
    columns_of,
    fits,
    side_by_side,
    unusable_columns,
)
from beam_spark_runner.engine.rows.table_rows import column_of
from beam_spark_runner.spark import frames, pyspark_internals
from beam_spark_runner.spark.driver.table_reasons import reason_for
from beam_spark_runner.spark.driver.table_schemas import struct_type
from beam_spark_runner.spark.session.conf import is_connect
from beam_spark_runner.spark.session.handle import SessionHandle


@dataclass(frozen=True, slots=True)
class OpenRead:
    """A table that is read: what it is, the name of the step, and its rows."""

    read: TableRead
    step: str
    frame: DataFrame


def schema_of(read: TableRead, session: SessionHandle) -> str:
    """Return the schema of what would be read, as Spark's JSON.

    Raises:
        TableError: Spark cannot read it.
    """
    with _explained(str(read), read.format, read.options, session):
        return pyspark_internals.schema_json(_frame(read, session))


def open_frame(read: TableRead, session: SessionHandle, step: str) -> DataFrame:
    """Return a frame of the pipeline's session.

    Args:
        read: the table, query or files to read.
        session: the session of the pipeline.
        step: the name of the step.

    Raises:
        TableError: Spark cannot read it, or its schema is not that the pipeline was built for.
    """
    with _explained(step, read.format, read.options, session):
        frame = _frame(read, session)
        actual = pyspark_internals.schema_json(frame)
    if read.schema:
        frame = frame.selectExpr(*_matching(read, actual, step))
    elif problems := unusable_columns(actual):
        raise TableError(f"{read} has columns that Beam cannot have: {'; '.join(problems)}", step)
    if frame.sparkSession is not session.spark:
        frame = pyspark_internals.in_session(frame, session.spark)
    return frame


def _matching(read: TableRead, actual: str, step: str) -> list[str]:
    """Return the columns of a table that the pipeline was built for."""
    types = {column.name: column.type for column in columns_of(actual)}
    columns = columns_of(read.schema)
    for name, type_, _ in columns:
        if name not in types or not fits(types[name], type_):
            comparison = side_by_side("the pipeline", read.schema, "the table", actual)
            raise TableError(f"{read} has another schema than the pipeline:\n{comparison}", step)
    return [f"`{column.name}`" for column in columns]


def _frame(read: TableRead, session: SessionHandle) -> DataFrame:
    catalog = session.catalog
    if read.frame:
        frame = _own_frame(read.frame, session)
    elif read.query:
        frame = catalog.sql(read.query)
    else:
        reader = catalog.read.options(**read.options)
        if read.format:
            reader = reader.format(read.format)
        if read.schema and read.format in WITHOUT_TYPES and not read.columns:
            reader = reader.schema(struct_type(read.schema))
        if read.table:
            frame = reader.table(read.table)
        else:
            frame = reader.load(read.path) if read.path else reader.load()
    if read.where:
        frame = frame.where(read.where)
    return frame.selectExpr(*read.columns) if read.columns else frame


def _own_frame(id_: str, session: SessionHandle) -> DataFrame:
    frame: DataFrame | None = FRAMES.get(id_)
    if frame is None:
        raise TableError(
            "ReadFromSpark(dataframe=…) works only in the process that has the DataFrame; with a "
            "job server, use table=, query= or path=",
            "",
        )
    theirs: Any = frame.sparkSession
    if is_connect(theirs) != session.is_connect or not _is_same_spark(theirs, session):
        raise TableError(
            "the DataFrame belongs to another Spark than that of the pipeline; pass its session: "
            "SparkPortableRunner(dataframe.sparkSession)",
            "",
        )
    return frame


def _is_same_spark(theirs: Any, session: SessionHandle) -> bool:
    ours: Any = session.spark
    if session.is_connect:
        return pyspark_internals.server_of(theirs) == pyspark_internals.server_of(ours)
    return theirs.sparkContext is ours.sparkContext


@contextlib.contextmanager
def _explained(
    step: str, format_: str, options: Mapping[str, str], session: SessionHandle
) -> Iterator[None]:
    """Turn what Spark raises into a TableError that says what to do."""
    try:
        with session.program_catalogs():
            yield
    except TableError as error:
        raise TableError(error.problem, error.where or step) from None
    except Exception as error:
        reason = reason_for(error, format_, options, str(session.spark.version))
        raise TableError(reason, step) from error


def rows_of_tables(
    tables: Mapping[DestinationId, DataFrame], others: DataFrame | None
) -> DataFrame:
    """Return one frame of the rows of tables, for ``table_rows.with_tables``, and of other rows.

    Args:
        tables: destination -> the table that it gets; at least one.
        others: rows as ``rows.schema`` has them; None: there are none.
    """
    if others is None and len(tables) == 1:
        ((dest, frame),) = tables.items()
        return frame.selectExpr(f"struct(*) as {column_of(dest)}")
    structs = {
        dest: frame.selectExpr(f"struct(*) as {column_of(dest)}") for dest, frame in tables.items()
    }
    plain = [field.name for field in frames.SCHEMA]
    parts = [] if others is None else [others]
    for dest, frame in structs.items():
        parts.append(
            frame.selectExpr(
                f"{int(dest)} as dest",
                "cast(0 as bigint) as route",
                "cast(0 as bigint) as `order`",
                "cast(null as binary) as key",
                "cast(null as binary) as value",
                column_of(dest),
            )
        )
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part, allowMissingColumns=True)
    return united.select(*plain, *map(column_of, structs))

"""Schemas of tables as PySpark has them."""

import json

from pyspark.sql.types import StructType

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.table_types import names_python_class


def check_types(schema: str, step: str) -> None:
    """Refuse a schema, which may come from a client of the job server, if it has code.

    Args:
        schema: The schema, as Spark's JSON of a struct.
        step: The name of the step that reads or writes the table.

    Raises:
        TableError: A type is defined by a class of Python, which PySpark would import or unpickle.
    """
    if names_python_class(json.loads(schema)):
        raise TableError("its schema has a type that a class of Python defines; cast it", step)


def struct_type(schema: str, step: str = "") -> StructType:
    """Return PySpark's form of a schema. See ``check_types``."""
    check_types(schema, step)
    return StructType.fromJson(json.loads(schema))

"""Tables that cannot be opened, whatever Spark there is."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.table_steps import TableRead
from beam_spark_runner.spark.driver.table_frames import open_frame
from beam_spark_runner.transforms.spark_tables.table_ddl import schema_of_ddl

SESSION: Any = SimpleNamespace(program_catalogs=contextlib.nullcontext, catalog=None)


def test_a_frame_that_is_not_here_is_refused() -> None:
    """As at a job server, which gets the id of a DataFrame and not the DataFrame."""
    gone = TableRead(frame="0" * 32, schema=schema_of_ddl("id BIGINT"))
    with pytest.raises(
        TableError, match=r"Step: .* works only in the process that has the DataFrame"
    ):
        open_frame(gone, SESSION, "Step")

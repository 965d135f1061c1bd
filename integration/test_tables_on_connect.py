"""Spark tables on Spark Connect: every mode, and failures."""

from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.transforms import ReadFromSpark
from integration.table_pipelines import Target, check_failed_append, check_failures, check_modes
from tests.harvest import PROCESS

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.connect
@pytest.mark.parametrize("harness", [(), PROCESS], ids=["embedded", "process"])
def test_every_mode_and_failure_on_spark_connect(
    connect_server: str, tmp_path: Path, harness: tuple[str, ...]
) -> None:
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession.builder.remote(connect_server).create()
    path = str(tmp_path / "out")
    try:
        files = Target(session, {"path": path}, lambda: session.read.parquet(path), harness)
        check_modes(files, partition_by="part")
        check_failures(files)
        check_failed_append(files)
        # Of a Connect server's catalog, which keeps it: the server continues.
        session.sql("DROP TABLE IF EXISTS beam_numbers").collect()
        table = Target(
            session, {"table": "beam_numbers"}, lambda: session.table("beam_numbers"), harness
        )
        check_modes(table)
        check_failures(table)
        with pytest.raises(TableError, match="nowhere"):
            table.run(lambda p: p | ReadFromSpark(table="nowhere"))
    finally:
        session.sql("DROP TABLE IF EXISTS beam_numbers").collect()
        session.stop()

"""Writes that are partitioned by columns, whose values are in the names of folders."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.transforms import WriteToSpark
from tests.harvest import run

pytestmark = pytest.mark.spark
SCHEMA = "id BIGINT, shop BIGINT, day STRING"


def write(
    spark: Any, path: Path, *rows: tuple[int, int, str], mode: str, schema: str = SCHEMA
) -> None:
    names = [column.split()[0] for column in schema.split(", ")]

    def build(p: beam.Pipeline) -> None:
        created = p | beam.Create([dict(zip(names, row, strict=True)) for row in rows])
        _ = created | WriteToSpark(
            path=str(path), mode=mode, partition_by=["shop", "day"], schema=schema
        )

    run(spark, build)


def ids(spark: Any, path: Path) -> list[tuple[int, int, str]]:
    rows = spark.read.parquet(str(path)).selectExpr("id", "shop", "string(day)").collect()
    return sorted(map(tuple, rows))


def test_appends_fit_whatever_types_spark_takes_the_names_of_folders_for(
    spark_session: Any, tmp_path: Path
) -> None:
    """Of BIGINT it makes INT, and of a text a DATE."""
    first, second = (1, 7, "2026-01-01"), (2, 8, "2026-01-02")
    path = tmp_path / "out"
    write(spark_session, path, first, mode="append")
    write(spark_session, path, second, mode="append")
    assert ids(spark_session, path) == [first, second]
    with pytest.raises(PipelineRefusedError, match="another schema than the rows"):
        write(spark_session, path, (3, 9, "x"), mode="append", schema=SCHEMA.replace("id", "nr"))


@pytest.mark.parametrize("overwrites", [pytest.param("static", marks=pytest.mark.rare), "dynamic"])
def test_an_overwrite_follows_the_settings_of_the_program(
    spark_session: Any, tmp_path: Path, overwrites: str
) -> None:
    first, second, third = (1, 7, "a"), (2, 8, "b"), (3, 8, "b")
    write(spark_session, tmp_path / "out", first, second, mode="error")
    spark_session.conf.set("spark.sql.sources.partitionOverwriteMode", overwrites)
    try:
        write(spark_session, tmp_path / "out", third, mode="overwrite")
    finally:
        spark_session.conf.unset("spark.sql.sources.partitionOverwriteMode")
    kept = [first] if overwrites == "dynamic" else []
    assert ids(spark_session, tmp_path / "out") == [*kept, third]

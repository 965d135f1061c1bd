"""``ReadFromSpark`` and ``WriteToSpark`` on a local Spark."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.spark.harvest import harvest

pytestmark = pytest.mark.spark


def test_parquet_in_and_out(spark_session: Any, tmp_path: Path) -> None:
    spark_session.range(1000).selectExpr("id", "concat('n', id) as name").write.parquet(
        str(tmp_path / "in")
    )

    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | ReadFromSpark(path=str(tmp_path / "in"))
        written = (
            rows
            | beam.Filter(lambda row: row.id % 2 == 0)
            | WriteToSpark(path=str(tmp_path / "out"))
        )
        return {"read": rows | beam.Map(lambda row: (row.id, row.name)), "written": written}

    found = harvest(spark_session, build)
    assert found["read"] == [(n, f"n{n}") for n in range(1000)]
    (result,) = found["written"]
    assert (result.written, result.rows) == (True, 500)
    files = {str(each) for each in (tmp_path / "out").glob("*.parquet")}
    assert {each.removeprefix("file://") for each in result.files} == files
    stored = spark_session.read.parquet(str(tmp_path / "out"))
    assert sorted(map(tuple, stored.collect())) == [(n, f"n{n}") for n in range(0, 1000, 2)]

"""Several writes of one pipeline to one target."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import PipelineRefusedError, SparkJobError
from beam_spark_runner.transforms import WriteToSpark
from tests.harvest import harvest, run

pytestmark = pytest.mark.spark


def two(first: dict[str, Any], second: dict[str, Any]) -> Callable[[beam.Pipeline], dict[str, Any]]:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | beam.Create([{"id": 1}, {"id": 2}])
        written = [
            rows | name >> WriteToSpark(**{"schema": "id BIGINT", **write})
            for name, write in (("One", first), ("Two", second))
        ]
        return {"files": written | beam.Flatten() | beam.Map(lambda result: sorted(result.files))}

    return build


def test_they_are_refused_before_anything_runs(spark_session: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    modes: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"mode": "error"}, {"mode": "error"}),
        ({"mode": "ignore"}, {"mode": "ignore"}),
        ({"mode": "overwrite"}, {"mode": "append"}),
        ({"mode": "append"}, {"mode": "append", "schema": "id INT"}),
    ]
    for first, second in modes:
        build = two({"path": str(out), **first}, {"path": f"{out}/", **second})
        with pytest.raises(PipelineRefusedError, match=r"Two.* writes parquet in .*, which One.*"):
            run(spark_session, build)
        assert not out.exists()


def test_a_folder_is_the_same_one_under_its_url(spark_session: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for scheme in ("file:", "file://"):
        build = two({"path": str(out)}, {"path": f"{scheme}{out}"})
        with pytest.raises(PipelineRefusedError, match="which One"):
            run(spark_session, build)


def test_tables_of_a_database_differ_by_their_names(spark_session: Any) -> None:
    database = {"format": "jdbc", "mode": "append"}
    url = "jdbc:derby:memory:nowhere"
    one, two_ = ({**database, "options": {"url": url, "dbtable": t}} for t in ("T", "U"))
    with pytest.raises(PipelineRefusedError) as raised:
        run(spark_session, two(one, {**one, "schema": "id INT"}))
    assert "which One" in str(raised.value)
    with pytest.raises(SparkJobError, match="'memory:nowhere' not found"):
        run(spark_session, two(one, two_))


def test_both_may_append(spark_session: Any, tmp_path: Path) -> None:
    append = {"path": str(tmp_path / "out"), "mode": "append"}
    found = harvest(spark_session, two(append, append))["files"]
    files = [file for each in found for file in each]
    assert len(set(files)) == len(files)
    rows = spark_session.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["id"] for row in rows) == [1, 1, 2, 2]

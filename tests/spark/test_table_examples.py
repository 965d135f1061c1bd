"""The examples of docs/spark_tables.md."""

import runpy
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.yaml.yaml_transform import expand_pipeline

from tests.harvest import run

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_beam_yaml(spark_session: Any, tmp_path: Path) -> None:
    file = EXAMPLES / "spark_tables.yaml"
    text = file.read_text().replace("{{ folder }}", str(tmp_path / "out"))

    def build(p: beam.Pipeline) -> None:
        expand_pipeline(p, text, pipeline_path=str(file))

    run(spark_session, build)
    stored = spark_session.read.parquet(str(tmp_path / "out"))
    assert sorted(row.id for row in stored.collect()) == list(range(801, 1000))
    assert stored.columns == ["id", "shop", "price"]


def test_data_frames_and_queries(
    spark_session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["spark_tables.py", f"--folder={tmp_path}"])
    runpy.run_path(str(EXAMPLES / "spark_tables.py"), run_name="__main__")
    stored = spark_session.read.parquet(str(tmp_path / "most")).collect()
    assert sorted(row.shop for row in stored) == [f"SHOP {n}" for n in range(7)]
    assert {row.most for row in stored} == {24.75}

"""Executors that lack what the driver has are named before anything runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import ExecutorMismatchError, OptionsError
from beam_spark_runner.runner import SparkPortableRunner
from beam_spark_runner.spark import preflight
from integration.cluster import Cluster

pytestmark = pytest.mark.cluster
_BARE = ("pyspark", "pyarrow", "pandas", "numpy", "py4j", "dateutil", "six", "pytz", "tzdata")


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment with what PySpark needs for Arrow, and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in sys.path:
        for name in _BARE:
            for found in (*Path(path or ".").glob(name), *Path(path or ".").glob(f"{name}*.libs")):
                (packages / found.name).symlink_to(found)
            for found in Path(path or ".").glob(f"{name}.py"):
                (packages / found.name).symlink_to(found)
    return str(folder / "bin" / "python")


@pytest.fixture
def fresh_checks() -> Iterator[None]:
    preflight._checked.clear()
    yield
    preflight._checked.clear()


def run(session: Any, *arguments: str) -> None:
    options = PipelineOptions(list(arguments))
    with beam.Pipeline(runner=SparkPortableRunner(session), options=options) as pipeline:
        _ = pipeline | beam.Create([1])


@pytest.mark.usefixtures("fresh_checks")
def test_missing_packages_are_named(cluster: Cluster, bare_python: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(cluster.master_url)
    conf = {**cluster.conf, "spark.executorEnv.PYTHONPATH": ""}
    for key, value in conf.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", bare_python)
        session = builder.getOrCreate()
        try:
            with pytest.raises(ExecutorMismatchError) as caught:
                run(session)
        finally:
            session.stop()
    text = str(caught.value)
    assert bare_python in text
    assert "apache-beam is missing, here 2." in text
    assert "beam-spark-runner is missing" in text
    assert "pyspark.python" in text


@pytest.mark.usefixtures("fresh_checks")
def test_storage_that_executors_do_not_share(
    cluster_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All machines are this one, so that it must be taken away once the driver has written it.
    probe = preflight._probe
    monkeypatch.setattr(preflight, "_probe", lambda path: probe(f"{path}-elsewhere"))
    with pytest.raises(OptionsError, match=r"--temp_location: .* is not storage that all"):
        run(cluster_session, f"--temp_location={tmp_path}")


@pytest.mark.usefixtures("fresh_checks")
def test_asked_once_per_application(
    cluster_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    ask = preflight._ask

    def note(*arguments: Any) -> Any:
        asked.append(arguments)
        return ask(*arguments)

    monkeypatch.setattr(preflight, "_ask", note)
    for _ in range(2):
        run(cluster_session)
        run(cluster_session, f"--temp_location={tmp_path}")
    assert len(asked) == 2
    assert list(tmp_path.iterdir()) == []

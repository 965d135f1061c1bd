"""Executors that lack what the driver has are named before anything runs."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import ExecutorMismatchError, OptionsError
from beam_spark_runner.runner import SparkPortableRunner
from beam_spark_runner.spark.session import preflight, python_archive, stored_folder
from integration.cluster import Cluster, end_jvm
from tests.connect_server import start_connect_server
from tests.user_packages import wheel

pytestmark = pytest.mark.cluster
_BARE = ("pyspark", "pyarrow", "py4j")


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
    preflight._archives.clear()
    yield
    preflight._checked.clear()
    preflight._archives.clear()


def run(session: Any, *arguments: str) -> None:
    options = PipelineOptions(list(arguments))
    with beam.Pipeline(runner=SparkPortableRunner(session), options=options) as pipeline:
        _ = pipeline | beam.Create([1])


def seen(session: Any, *flags: str) -> set[str]:
    """Return where tasks find this package, their interpreter, and a staged package's version."""

    def look(_: Any) -> str:
        import importlib.util
        import sys

        import beam_spark_runner

        found = importlib.util.find_spec("packed_for_a_test")
        version = found and __import__("packed_for_a_test").VERSION
        return f"{beam_spark_runner.__file__} {sys.executable} {version}"

    with tempfile.TemporaryDirectory() as folder:
        options = PipelineOptions(list(flags))
        with beam.Pipeline(SparkPortableRunner(session), options) as p:
            looked = p | beam.Create(range(20)) | beam.Reshuffle() | beam.Map(look)
            _ = looked | beam.Distinct() | beam.io.WriteToText(f"{folder}/seen")
        lines = [path.read_text().splitlines() for path in Path(folder).glob("seen*")]
        return {line for each in lines for line in each}


def noted_packs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of all calls to come that pack the packages of this environment."""
    packed: list[Any] = []

    def pack(pythons: Any) -> Path:
        packed.append(pythons)
        return python_archive.pack_environment(pythons)

    monkeypatch.setattr(preflight, "pack_environment", pack)
    return packed


@pytest.fixture
def bare_session(
    cluster: Cluster, bare_python: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Any]:
    """A session whose executors have no Beam. Nothing was packed for them yet."""
    from pyspark.sql import SparkSession

    end_jvm()  # one that runs already may have settings of the session that has started it
    builder = SparkSession.builder.master(cluster.master_url)
    for key, value in {**cluster.conf, "spark.executorEnv.PYTHONPATH": ""}.items():
        builder = builder.config(key, value)
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.mark.usefixtures("fresh_checks")
def test_missing_packages_are_named(bare_session: Any, bare_python: str) -> None:
    with pytest.raises(ExecutorMismatchError) as caught:
        run(bare_session, "--executor_environment=installed")
    text = str(caught.value)
    assert bare_python in text
    assert "apache-beam is missing, here 2." in text
    assert "beam-spark-runner is missing" in text
    assert "pyspark.python" in text


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("fresh_checks")
def test_executors_without_beam_are_sent_it(
    bare_session: Any, bare_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all pipelines of the application, also beneath packages of a pipeline's own."""
    packed = noted_packs(monkeypatch)
    for _ in range(2):
        without_package = seen(bare_session)
        assert all("/environment-" in line and bare_python in line for line in without_package)
        assert packed == [[bare_python]]
    file = wheel(tmp_path, "packed_for_a_test", "1.5", "VERSION = '1.5'\n")
    with_package = seen(bare_session, f"--extra_package={file}")
    assert all("/environment-" in line and line.endswith(" 1.5") for line in with_package)
    assert len(packed) == 1
    assert len(list((tmp_path / "cache").rglob("environment-*.tar.gz"))) == 1


@pytest.mark.connect
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("fresh_checks")
def test_spark_connect_without_beam(
    bare_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pipeline's session is sent it, and the user's session stays as it was."""
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = noted_packs(monkeypatch)
    file = wheel(tmp_path, "packed_for_a_test", "1.6", "VERSION = '1.6'\n")
    log = tmp_path / "server.log"
    with start_connect_server(log, python=bare_python, has_this_package=False) as url:
        session = SparkSession.builder.remote(url).create()
        with pytest.raises(ExecutorMismatchError, match="apache-beam is missing"):
            run(session, "--executor_environment=installed")
        without_package = seen(session)
        assert all("/environment-" in line and bare_python in line for line in without_package)
        with_package = seen(session, f"--extra_package={file}")
        assert all("/environment-" in line and line.endswith(" 1.6") for line in with_package)
        assert packed == [[bare_python]]
        assert session.conf.get("spark.sql.execution.pyspark.python", "unset") == "unset"
        session.stop()


@pytest.mark.usefixtures("fresh_checks")
def test_storage_that_executors_do_not_share(
    cluster_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All machines are this one, so that it must be taken away once the driver has written it.
    probe = preflight._probe
    monkeypatch.setattr(preflight, "_probe", lambda path: probe(f"{path}-elsewhere"))
    with pytest.raises(OptionsError, match=r"--temp_location: .* is not storage that all"):
        run(cluster_session, f"--temp_location={tmp_path}")


def test_a_checkpoint_folder_that_executors_do_not_share(
    cluster_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = stored_folder._probe_task

    def elsewhere(folder: Any, name: str, **named: Any) -> Any:
        return reading(folder / "elsewhere", name, **named)

    flags = ["--batch_job_recovery", f"--checkpoint_dir={tmp_path}"]
    with monkeypatch.context() as patched:
        patched.setattr(stored_folder, "_probe_task", elsewhere)
        with pytest.raises(OptionsError, match=r"--checkpoint_dir: .* is not storage that all"):
            run(cluster_session, *flags)
    run(cluster_session, *flags)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


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

"""What a user reads when Spark cannot start. None of it needs a JVM, or waits for one."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import java_gateway

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.harness.program_folders import import_path
from beam_spark_runner.spark.session import launch


@pytest.fixture(autouse=True)
def _as_if_no_jvm_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_gateway", "_jvm"):  # other tests of this process have sessions there
        monkeypatch.setattr(f"pyspark.SparkContext.{name}", None)
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT", "https_proxy", "HTTPS_PROXY", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


def java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir()
    (folder / "bin" / "java").touch(mode=0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_no_java_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SparkSetupError, match="no java is on the PATH") as caught:
        launch.start_classic("local[1]", "x", {})
    assert "JAVA_HOME" in caught.value.remedy


def test_java_home_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkSetupError, match="has no bin/java"):
        launch.start_classic("local[1]", "x", {})


@pytest.mark.parametrize("version", ["1.7.0_80", "7"])
def test_java_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    with pytest.raises(SparkSetupError, match="is Java 7") as caught:
        launch.start_classic("local[1]", "x", {})
    assert "or newer" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21)]
)
def test_java_version(tmp_path: Path, text: str, version: int) -> None:
    assert launch._java_version(str(java(tmp_path, text) / "bin" / "java")) == version


@pytest.mark.parametrize("version", ["3.4.1", "5.0.0", "2.4"])
def test_pyspark_of_another_age(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(SparkSetupError, match=r"needs 3\.5 or 4\.x"):
        launch.start_classic("local[1]", "x", {})


def test_no_master_answers() -> None:
    url = f"spark://127.0.0.1:{closed_port()},127.0.0.1:{closed_port()}"
    start = time.monotonic()
    with pytest.raises(SparkSetupError, match="no master answers at spark://127"):
        launch.start_classic(url, "x", {})
    assert time.monotonic() - start < 10  # Spark itself would try for a minute


def test_no_connect_server_answers_and_the_token_stays_secret() -> None:
    url = f"sc://127.0.0.1:{closed_port()}/;token=sesame"
    start = time.monotonic()
    with pytest.raises(SparkSetupError, match="no Spark Connect server answers") as caught:
        launch.start_connect(url, {})
    assert "sesame" not in str(caught.value)
    assert time.monotonic() - start < 10  # its client would try for ten minutes


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("spark://a", [("a", 7077)]),
        ("sc://a/;token=b:9", [("a", 15002)]),
        ("sc://[::1]:15003", [("::1", 15003)]),
    ],
)
def test_addresses(url: str, addresses: list[tuple[str, int]]) -> None:
    assert list(launch.addresses_in(url)) == addresses


def test_workers_get_the_folder_of_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path), os.__file__.rpartition("/")[0], "/nowhere"])
    assert import_path() == [str(tmp_path)]


def test_workers_get_an_import_path_though_the_working_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr("sys.path", ["", "modules", str(tmp_path)])
    assert import_path() == [str(tmp_path)]


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "1")
    monkeypatch.delenv("B", raising=False)
    with launch._environment({"A": "2", "B": "3"}):
        assert (os.environ["A"], os.environ["B"]) == ("2", "3")
    assert os.environ["A"] == "1"
    assert "B" not in os.environ


@pytest.mark.parametrize("moment", ["in Popen", "while it waits"])
def test_a_signal_while_the_jvm_starts_ends_the_jvm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
) -> None:
    (tmp_path / "of the port").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def popen(*given: Any, **named: Any) -> Any:
        started.append(process := real(*given, **named))
        if moment == "in Popen":
            signal.raise_signal(signal.SIGINT)
        return process

    def slow_start(**_: object) -> None:
        where = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(tmp_path / "of the port" / "port")}
        vars(java_gateway)["Popen"](["sleep", "3600"], stdin=subprocess.PIPE, env=where)
        if moment == "while it waits":
            signal.raise_signal(signal.SIGINT)
        raise AssertionError

    real = subprocess.Popen
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", slow_start)
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(launch, "end_jvm", lambda: pytest.fail("it ends the JVM of other tests"))
    # Tests that run in the background of a script ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch.start_classic("local[1]", "x", {})
    finally:
        signal.signal(signal.SIGINT, before)
    (process,) = started
    assert process.returncode == -signal.SIGTERM
    assert [*tmp_path.iterdir()] == []
    assert vars(java_gateway)["Popen"] is real

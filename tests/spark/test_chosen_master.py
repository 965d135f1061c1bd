"""Which master and settings Spark takes where a program names none, before there is a JVM."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from beam_spark_runner.spark.session.chosen_master import chosen_master, chosen_settings


@pytest.fixture(autouse=True)
def conf_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of Spark's configuration, for a program that has started no JVM."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_nothing_is_chosen() -> None:
    assert chosen_master() is None


@pytest.mark.parametrize(
    "arguments",
    [
        "--master yarn pyspark-shell",
        "--master=yarn pyspark-shell",
        "--name a --master local[2] --master yarn pyspark-shell",
        "--conf spark.master=yarn pyspark-shell",
        "--conf 'spark.master = yarn' pyspark-shell",
        "-c spark.master=yarn --conf=spark.ui.enabled=false pyspark-shell",
        "--conf spark.master=local[2] -c spark.master=yarn pyspark-shell",
        "--conf spark.master=local[2] --master yarn pyspark-shell",
    ],
)
def test_by_arguments_of_spark_submit(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert chosen_master() == "yarn"


@pytest.mark.parametrize(
    "arguments", ["--master", "--name master pyspark-shell", "--name 'spark.master=yarn"]
)
def test_by_none_of_these(monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert chosen_master() is None


@pytest.mark.parametrize(
    "line",
    ["spark.master yarn", "spark.master=yarn", "  spark.master\t:  yarn  ", "spark.master = yarn"],
)
def test_by_spark_s_configuration(conf_dir: Path, line: str) -> None:
    content = (
        f"# spark.master local[1]\nspark.master.rest.enabled false\n{line}\nspark.app.name a\n"
    )
    (conf_dir / "spark-defaults.conf").write_text(content)
    assert chosen_master() == "yarn"


def test_the_last_line_of_spark_s_configuration_wins(conf_dir: Path) -> None:
    content = "spark.master local[2]\nspark.master yarn\n"
    (conf_dir / "spark-defaults.conf").write_text(content)
    assert chosen_master() == "yarn"


def test_by_the_configuration_in_spark_s_home(
    monkeypatch: pytest.MonkeyPatch, conf_dir: Path
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_HOME", str(conf_dir))
    (conf_dir / "conf").mkdir()
    (conf_dir / "conf" / "spark-defaults.conf").write_text("spark.master yarn\n")
    assert chosen_master() == "yarn"


def test_another_file_of_properties(monkeypatch: pytest.MonkeyPatch, conf_dir: Path) -> None:
    (conf_dir / "spark-defaults.conf").write_text("spark.master yarn\n")
    (conf_dir / "mine.conf").write_text("spark.master spark://a:7077\n")
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", f"--properties-file {conf_dir}/mine.conf pyspark-shell"
    )
    assert chosen_master() == "spark://a:7077"


def test_arguments_win_over_files_and_these_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, conf_dir: Path
) -> None:
    monkeypatch.setenv("MASTER", "spark://c:7077")
    assert chosen_master() == "spark://c:7077"
    (conf_dir / "spark-defaults.conf").write_text("spark.master spark://b:7077\n")
    assert chosen_master() == "spark://b:7077"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://a:7077 pyspark-shell")
    assert chosen_master() == "spark://a:7077"


def test_the_master_of_an_earlier_session_is_that_of_those_that_name_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark has it so: what is set for a local one would be wrong there."""
    properties = {"spark.master": "spark://a:7077"}
    system = SimpleNamespace(getProperty=properties.get)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    monkeypatch.setattr("pyspark.SparkContext._jvm", jvm)
    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", lambda **_: None)
    assert chosen_master() == "spark://a:7077"


def test_settings_of_the_command_line_win_over_those_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, conf_dir: Path
) -> None:
    lines = "spark.a 1\nspark.a 2\nspark.b  -Dx=y -Dz \n# spark.c 4\nspark.e 5\n"
    (conf_dir / "spark-defaults.conf").write_text(lines)
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--conf spark.a=3 --conf spark.a=4 -c 'spark.d=a=b' pyspark-shell"
    )
    assert chosen_settings([f"spark.{each}" for each in "abcd"]) == {
        "spark.a": "4",
        "spark.b": "-Dx=y -Dz",
        "spark.d": "a=b",
    }


def test_settings_of_spark_submit_are_those_of_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(getProperty={"spark.a": "1"}.get)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=properties)))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr("beam_spark_runner.spark.pyspark_internals.start_jvm", lambda: None)
    monkeypatch.setattr("beam_spark_runner.spark.pyspark_internals.jvm", lambda: jvm)
    assert chosen_settings(["spark.a", "spark.b"]) == {"spark.a": "1"}

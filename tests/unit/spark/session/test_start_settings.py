"""Whose settings a Spark is started with, if several have an opinion."""

from pathlib import Path

import pytest

from beam_spark_runner.spark.session.chosen_master import chosen_settings
from beam_spark_runner.spark.session.start_settings import keep_chosen, settings_of_runner

FLAGS = "spark.driver.defaultJavaOptions"


@pytest.mark.parametrize("is_local", [True, False])
def test_what_spark_submit_was_given_is_kept(is_local: bool) -> None:
    """Also what an administrator has written into ``spark-defaults.conf``."""
    ours = settings_of_runner(None, is_local=is_local, has_fresh_jvm=False, given={})
    settings = dict(ours)
    keep_chosen(settings, dict.fromkeys(ours, "theirs"), {})
    assert settings == {}


def test_options_of_the_pipeline_win() -> None:
    settings = {"spark.a": "of the pipeline", "spark.b": "of the runner"}
    keep_chosen(settings, {"spark.a": "of spark-submit"}, {"spark.a": "of the pipeline"})
    assert settings == {"spark.a": "of the pipeline", "spark.b": "of the runner"}


def test_flags_of_the_jvm_are_added_to_each_other() -> None:
    """EMR has some in its configuration."""
    settings = {FLAGS: "-XX:Ours"}
    keep_chosen(settings, {FLAGS: "-XX:OnOutOfMemoryError='kill -9 %p'"}, {})
    assert settings == {FLAGS: "-XX:Ours -XX:OnOutOfMemoryError='kill -9 %p'"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--conf spark.app.name=one pyspark-shell", "one"),
        ("--name=two pyspark-shell", "two"),
        ("--name two --conf spark.app.name=one pyspark-shell", "two"),
        ("pyspark-shell", None),
    ],
)
def test_the_name_of_the_application_is_that_of_pyspark_submit_args(
    words: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    assert chosen_settings(["spark.app.name"]).get("spark.app.name") == name

"""Whose settings a Spark is started with, if several have an opinion."""

import pytest

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

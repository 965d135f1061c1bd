"""What a program says until its pipeline begins, or if it does not begin."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.job.run import session_opening
from beam_spark_runner.job.watching.lines import end_line
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session import announced
from tests.unit.job.watching.test_job_progress import Shown


@pytest.mark.parametrize(
    ("master", "has_context", "text"),
    [
        ("local[4]", False, "starting Spark local[4]"),
        (None, False, "starting Spark local[*]"),
        ("sc://host:15002/;token=secret", False, "connecting to sc://host:15002"),
        ("local[4]", True, "opening a Spark session"),
    ],
)
def test_a_session_is_announced_once(
    monkeypatch: pytest.MonkeyPatch, master: str | None, has_context: bool, text: str
) -> None:
    monkeypatch.setattr(pyspark_internals, "has_context", lambda: has_context)
    monkeypatch.setattr(announced, "chosen_master", lambda: "local[*]")
    monkeypatch.setattr(announced, "_CONNECT", "no such module")
    session: Any = SimpleNamespace(ui_url=lambda: f"http://{text}")
    monkeypatch.setattr(session_opening, "open_session", lambda *_: session)
    config, line = RunnerConfig(spark_master_url=master), Shown()
    for _ in range(2):
        assert session_opening.open_and_show(config, None, line) is session
    assert line.parts() == [text]
    assert line.said == [f"Spark UI: http://{text}"]
    assert session_opening.open_and_show(config, None, None) is session


def test_the_recording_in_readme_shows_what_is_said_today() -> None:
    """If not: ``make recording``, in a terminal."""
    recording = Path(__file__).parents[4] / "docs" / "images" / "word_count.svg"
    text = recording.read_text()
    assert "Spark UI: http://" in text
    assert "DONE in " in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("shown by Python"), []),
        (KeyboardInterrupt(), ["CANCELLED after 1:26"]),
        (SystemExit(143), ["CANCELLED after 1:26"]),
    ],
)
def test_a_pipeline_that_does_not_begin(error: BaseException, said: list[str]) -> None:
    line = Shown()
    for _ in range(2):  # the second time it is closed
        end_line(line, error)
        assert line.said == said
    end_line(None, error)

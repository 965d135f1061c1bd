"""Options that are almost spelled right."""

import logging
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.options.spelling import misspelled, warn_of_misspelled


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--paralelism=4", "parallelism"),
        ("--spark_config=a=b", "spark_conf"),
        ("--chekpoint_dir", "checkpoint_dir"),
        ("--showplan", "show_plan"),
        ("--parallel=4", None),  # argparse accepts it
        ("--show_plan", None),
        ("--input=progress", None),
        ("paralelism", None),
        ("--", None),
    ],
)
def test_what_was_meant(flag: str, meant: str | None) -> None:
    found = misspelled([flag], lambda: {"parallelism", "show_plan", "spark_conf"})
    assert [each for _, each in found] == ([] if meant is None else [meant])


def test_a_program_is_warned_of_what_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_misspelled(PipelineOptions(["--paralelism=4", "--spark_conf=a=b"]))
    assert caplog.messages == [
        "--paralelism is not an option and is ignored: did you mean --parallelism?"
    ]


def test_options_that_are_no_flags(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_misspelled(PipelineOptions(streaming=True))
    warn_of_misspelled(PipelineOptions())
    assert caplog.messages == []


def test_options_of_the_program_are_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Mine(PipelineOptions):  # type: ignore[misc]
        @classmethod
        def _add_argparse_args(cls, parser: Any) -> None:
            parser.add_argument("--paralelismo")
            parser.add_value_provider_argument("--input")

    with caplog.at_level(logging.WARNING):
        warn_of_misspelled(PipelineOptions(["--paralelismo=4"]))
    del Mine
    assert caplog.messages == []

"""A program, and a unit test, whose pipeline fails by an exception of their own code."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.programs import ROOT, last_words, lines_of, run

pytestmark = pytest.mark.slow


@pytest.mark.spark
def test_a_program_catches_its_own_error(tmp_path: Path) -> None:
    """Its class is in the program's main module, which workers have by value."""
    script = """
        class EmptyOrderError(Exception):
            def __init__(self, number, *, customer):
                self.number, self.customer = number, customer

        def check(order):
            raise EmptyOrderError(order, customer="Ann")

        try:
            with beam.Pipeline(argv=OPTIONS) as p:
                p | beam.Create([17]) | "Check" >> beam.Map(check)
        except EmptyOrderError as error:
            print(error.number, error.customer, error.step)
    """
    ended = run(tmp_path, script, "--spark_master_url=local[2]")
    assert (ended.code, ended.out, lines_of(ended.err)) == (0, "17 Ann Check\n", [])


UNIT_TESTS = """
import apache_beam as beam
import pytest
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import BeamAssertException, assert_that, equal_to
import beam_spark_runner

OPTIONS = beam.options.pipeline_options.PipelineOptions(
    ["--runner=SparkPortableRunner", "--spark_master_url=local[2]"]
)

def test_what_is_wrong(capfd):
    with pytest.raises(BeamAssertException):
        with test_pipeline.TestPipeline(options=OPTIONS) as p:
            assert_that(p | beam.Create(range(100)) | beam.Reshuffle(), equal_to([1]))
    shown = capfd.readouterr()
    assert "Stage" not in shown.out + shown.err
    assert "\\r" not in shown.out + shown.err

def test_what_is_not_written():
    def later(x):
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        with test_pipeline.TestPipeline(options=OPTIONS) as p:
            p | beam.Create([1]) | beam.Map(later)
"""


@pytest.mark.rare
@pytest.mark.spark
def test_unit_tests_catch_errors_by_their_type(tmp_path: Path) -> None:
    file = tmp_path / "test_of_a_user.py"
    file.write_text(UNIT_TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def test_a_program_whose_job_server_is_not_there(tmp_path: Path) -> None:
    script = """
        with beam.Pipeline(argv=OPTIONS) as p:
            p | beam.Create([1])
    """
    ended = run(tmp_path, script, "--job_endpoint=127.0.0.1:9", "--job_server_timeout=1")
    first, *_ = lines_of(ended.err)
    assert first.removeprefix("WARNING:beam_spark_runner.job.client.reaching:").startswith(
        "no job server answers at 127.0.0.1:9 (connection refused). Start one "
        "(python -m beam_spark_runner --job_port=9), or correct --job_endpoint; it is waited for"
    )
    assert last_words(ended.err).startswith("--job_endpoint: no job server answers at 127.0.0.1:9")

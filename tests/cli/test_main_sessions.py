"""What is saved of a program's main module."""

from pathlib import Path

import pytest

from tests.cli.programs import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--spark_master_url=in-process"], id="in-process"),
        pytest.param([], id="on Spark", marks=[pytest.mark.spark, pytest.mark.rare]),
    ],
)
def test_a_main_session_needs_this_package_only_if_the_program_does(
    tmp_path: Path, flags: list[str]
) -> None:
    """SDK harnesses in containers load the session of a program, and need not have this package."""
    script = """
    from apache_beam.internal import cloudpickle_pickler
    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([1])
    cloudpickle_pickler.dump_session("session")
    """
    ended = run(tmp_path, script, *flags)
    assert ended.code == 0, ended.err
    assert b"beam_spark_runner" not in (tmp_path / "session").read_bytes()

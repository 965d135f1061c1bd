"""What a program imports before it runs a pipeline."""

import subprocess
import sys

import pytest

_BARE = """
import sys
before = set(sys.modules)
import beam_spark_runner
"""
_OPTIONS = """
import sys
from apache_beam.options.pipeline_options import PipelineOptions
before = set(sys.modules)
try:
    PipelineOptions(["--help"]).get_all_options()
except SystemExit:
    pass
assert "beam_spark_runner.options.declared" in sys.modules
"""
_ADDED = """
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*(added - sys.stdlib_module_names))
"""


@pytest.mark.parametrize("code", [_BARE, _OPTIONS], ids=["bare import", "--help"])
def test_no_other_library_is_imported(code: str) -> None:
    """Neither PySpark, nor Beam itself with gRPC and pandas, if the program has not done so."""
    done = subprocess.run(
        [sys.executable, "-c", code + _ADDED],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.splitlines()[-1].split()) <= {"beam_spark_runner"}

"""Interactive Beam in a shell of IPython, where it shows what elsewhere it only collects."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
    import apache_beam as beam
    from apache_beam.runners.interactive import interactive_beam as ib
    from apache_beam.runners.interactive.interactive_runner import InteractiveRunner
    from beam_spark_runner import SparkPortableRunner

    p = beam.Pipeline(InteractiveRunner(underlying_runner=SparkPortableRunner()))
    counts = p | beam.Create(["a", "b", "a", "a"]) | beam.combiners.Count.PerElement()
    ib.watch({"p": p, "counts": counts})
    ib.show(counts)
"""


def test_show(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(textwrap.dedent(SCRIPT))
    ended = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", script],
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    rows = sorted(line.split()[1:] for line in ended.stdout.splitlines() if line[:1].isdigit())
    assert rows == [["a", "3"], ["b", "1"]], ended.stderr

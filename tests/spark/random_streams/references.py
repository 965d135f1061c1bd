"""Beam's runners that play a TestStream."""

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.spark.random_streams.disagreements import DIRECT
from tests.spark.random_streams.recipes import Pack
from tests.spark.random_streams.running import Outputs, outputs_of


def prism() -> str | None:
    """Return where Prism is, if it is anywhere: ``$PRISM``, next to this Python, or on the path.

    ``make .venv-conformance/bin/prism`` installs one, for the target of this test.
    """
    beside = Path(sys.executable).with_name("prism")
    return os.environ.get("PRISM") or (str(beside) if beside.exists() else shutil.which("prism"))


def outputs_by(other: str, pack: Pack) -> Outputs:
    """Run a pack on one of Beam's runners."""
    if not pack.recipes:
        return {}
    runner: Any
    if other == DIRECT:
        from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner

        runner, flags = BundleBasedDirectRunner(), ["--streaming"]
    else:
        from apache_beam.runners.portability.prism_runner import PrismRunner

        runner = PrismRunner()
        flags = [f"--prism_location={prism()}", "--prism_log_level=error"]
    found = outputs_of(runner, pack, *flags)
    return {label: _on_our_wire(elements) for label, elements in found.items()}


def _on_our_wire(elements: Counter[Any]) -> Counter[Any]:
    """Python's SDK has the global window end a microsecond earlier: on the wire, a millisecond."""
    last, after = 9223371950454774, 9223371950454775
    return Counter(
        {
            each._replace(at=last) if each.at == after else each: count
            for each, count in elements.items()
        }
    )

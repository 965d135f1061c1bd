"""Diagrams of the documentation: whether Mermaid can draw them, and whether they are up to date."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.diagrams import pages
from tests.test_docs import PAGES

# Where `make` installs the parser: next to the Python that runs the tests.
PARSER = Path(sys.prefix) / "mermaid"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)


def errors_of(*diagrams: str) -> list[str | None]:
    """Return the error of each diagram, or None."""
    parsed = subprocess.run(
        ["node", "parse.mjs"],
        cwd=PARSER,
        input=json.dumps(diagrams),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert parsed.returncode == 0, parsed.stderr
    found: list[str | None] = json.loads(parsed.stdout)
    return found


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.skipif(not (PARSER / "node_modules").exists(), reason="make test installs Mermaid")
def test_mermaid_parses_all_diagrams() -> None:
    diagrams = [(page, found) for page in PAGES for found in _BLOCK.findall(page.read_text())]
    wrong = "flowchart TB\n  a --> --> b"
    *errors, error_of_wrong = errors_of(*(text for _, text in diagrams), wrong)
    assert diagrams
    assert error_of_wrong is not None
    problems = {
        f"{page}: {error}" for (page, _), error in zip(diagrams, errors, strict=True) if error
    }
    assert not problems


def test_diagrams_that_come_from_code_are_up_to_date() -> None:
    outdated = [page for page, text in pages() if page.read_text() != text]
    assert not outdated, "run make diagrams"

"""Clients of a job server of the chart, outside of the cluster."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from integration.kubernetes.go_programs import ROOT
from integration.kubernetes.releases import Release

ENDPOINT = "localhost:8099"
ENDS_WITHIN_S = 900.0
_TEXT = (ROOT / "README.md").read_text()


def count_words(release: Release, *options: str) -> None:
    """Run Beam's word count in Python, and check its output.

    Args:
        release: has a job server, which all may call or those who have what ``options`` name.
        options: of the client.
    """
    output = release.folder("python") / "counts"
    ended(
        release,
        *(sys.executable, "-m", "apache_beam.examples.wordcount"),
        *("--runner=SparkPortableRunner", f"--job_endpoint={ENDPOINT}", *options),
        *(f"--input={text_file(release)}", f"--output={output}"),
    )
    assert counts(output)["the"] == words()["the"]


def text_file(release: Release) -> Path:
    """Write the file whose words are counted to the shared storage; return its path."""
    file = release.shared / "input.txt"
    file.write_text(_TEXT)
    return file


def words() -> Counter[str]:
    """Count as Beam's examples do."""
    return Counter(re.findall(r"[a-zA-Z]+(?:'[a-z])?", _TEXT))


def counts(prefix: Path) -> dict[str, int]:
    """Return what files say whose names begin with a prefix."""
    lines = [
        line
        for path in prefix.parent.glob(f"{prefix.name}*")
        for line in path.read_text().splitlines()
    ]
    return {key: int(count) for key, _, count in (line.partition(": ") for line in lines)}


def ended(release: Release, *command: str) -> str:
    """Run a client until it ends; return what it has said."""
    with release.forwarded():
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ENDS_WITHIN_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout

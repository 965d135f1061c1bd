"""A pipeline of Beam's TypeScript SDK, submitted to a job server by a Node program."""

import shutil
import subprocess
from pathlib import Path

import pytest

from integration.job_server import start_job_server

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.skipif(shutil.which("npm") is None, reason="Node is not installed"),
]
PROGRAM = Path(__file__).parent / "typescript"
SOON_S = 300.0


def test_words_are_counted(tmp_path: Path) -> None:
    """The second program expects what is wrong: so the first one has looked at the counts."""
    folder = tmp_path / "program"
    shutil.copytree(PROGRAM, folder, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "install", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=SOON_S)
    endpoint = start_job_server()
    for count, status in (("3", 0), ("4", 1)):
        program = ["node", "word_count.js", endpoint, count]
        ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=SOON_S)
        assert ended.returncode == status, ended.stderr
    assert "Job finished in state FAILED" in ended.stderr

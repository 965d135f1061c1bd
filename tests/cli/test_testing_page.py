"""The page about tests, followed by a user who has no Java."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def pytest_in(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the tests of a folder where no Java can be found."""
    without_java = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "JAVA_HOME": "/nonexistent",
        "PATH": str(Path(sys.executable).parent),
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        env=without_java,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_what_the_page_shows_passes(tmp_path: Path) -> None:
    conftest, words, metrics = BLOCKS
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_words.py").write_text(words)
    (tmp_path / "test_lines.py").write_text(metrics)
    ended = pytest_in(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def test_a_wrong_result_fails_the_test(tmp_path: Path) -> None:
    conftest, words, _ = BLOCKS
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_words.py").write_text(words.replace('("to", 2)', '("to", 3)'))
    ended = pytest_in(tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "BeamAssertException: Failed assert" in ended.stdout

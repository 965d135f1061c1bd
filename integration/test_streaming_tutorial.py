"""The tutorial of docs/streaming.md: words of files that arrive, a program that is killed."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from integration.waiting import newest_epoch, wait_until
from tests.cli.programs import ROOT, Program

pytestmark = pytest.mark.timeout(900)

_SCRIPT = """
    import runpy
    sys.argv[1:] = OPTIONS
    runpy.run_path({!r}, run_name="__main__")
    """


def counted(folder: Path) -> Counter[str]:
    """Return the words in the files that are there, and how often each of them came."""
    counts: Counter[str] = Counter()
    for path in folder.glob("count*.txt"):
        for line in path.read_text().splitlines():
            word, number = line.split()
            counts[word] += int(number)
    return counts


def test_word_counts_of_a_program_that_is_killed(tmp_path: Path) -> None:
    words, counts, checkpoints = (tmp_path / name for name in ("words", "counts", "checkpoints"))
    words.mkdir()

    def start(name: str) -> Program:
        folder = tmp_path / name
        folder.mkdir()
        return Program(
            folder,
            _SCRIPT.format(str(ROOT / "examples" / "streaming" / "word_counts.py")),
            f"--input={words}/*.txt",
            f"--output={counts}/count",
            "--window=2",
            f"--checkpoint_dir={checkpoints}",
            "--spark_master_url=local[2]",
            "--drain_on_sigterm",
        )

    first = start("first")
    (words / "one.txt").write_text("to be or not to be")
    assert first.wait_until(lambda: counted(counts).total() == 6)
    (words / "two.txt").write_text("that is the question")
    seen = newest_epoch(checkpoints)
    wait_until(lambda: newest_epoch(checkpoints) > seen, "another epoch")
    first.send(signal.SIGKILL)
    first.end()
    second = start("second")
    assert second.wait_until(lambda: counted(counts).total() == 10)
    (words / "three.txt").write_text("to sleep")
    assert second.wait_until(lambda: counted(counts).total() == 12)
    second.send(signal.SIGTERM)
    ended = second.end()
    assert ended.code == 0, ended.err
    expected = {"to": 3, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}
    assert counted(counts) == Counter({**expected, "sleep": 1})
    assert newest_epoch(checkpoints) > seen

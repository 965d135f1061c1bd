"""Files with words that arrive in a folder, for ``examples/streaming/word_counts.py``."""

import itertools
from collections import Counter
from pathlib import Path


class ArrivingWords:
    """The input and the output of a stream that counts words.

    Args:
        input_folder: of files that arrive.
        output_folder: of the files with counts, which begin with ``count``.
    """

    def __init__(self, input_folder: Path, output_folder: Path) -> None:
        self._input, self._output = input_folder, output_folder
        self._expected: Counter[str] = Counter()
        self._numbers = itertools.count()
        self.flags: tuple[str, ...] = (
            f"--input={input_folder}/*.txt",
            f"--output={output_folder}/count",
            "--window=2",
        )

    def add(self) -> None:
        """Add a file with new words."""
        number = next(self._numbers)
        words = [f"word{number}x{each}" for each in range(20)]
        self._expected.update(words)
        hidden = self._input / f".{number}"
        hidden.write_text(" ".join(words))
        hidden.rename(self._input / f"{number}.txt")

    def are_counted(self) -> bool:
        """Whether each word is counted that was added."""
        return self.counts() >= self._expected

    def check(self) -> None:
        """Check that each word is counted once."""
        assert self.counts() == self._expected

    def counts(self) -> Counter[str]:
        """Return the sum of all counts that were written of each word."""
        found: Counter[str] = Counter()
        for path in self._output.glob("count*.txt"):
            for line in path.read_text().splitlines():
                word, _, count = line.partition(" ")
                found[word] += int(count)
        return found

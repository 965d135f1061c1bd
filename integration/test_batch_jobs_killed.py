"""Batch jobs whose program is killed at any of its changes, until they are done."""

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from integration.batch_deaths import Death
from integration.batch_driver import ELEMENTS, KEYS, PIPELINES
from tests.cli.programs import Ended, Program

pytestmark = pytest.mark.timeout(3600)

KILLS = int(os.environ.get("BATCH_KILLS", "6"))
_SCRIPT = """
    from integration.batch_deaths import Death
    from integration.batch_driver import main
    main(OPTIONS, {!r}, {!r}, {!r})
    """


class Runs:
    """One job, and the starts of it that are killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._out = folder / "out"
        self.job = str(folder / "job")
        self.flags: Sequence[str] = ()
        self.environment: Mapping[str, str] = {}
        self.leaves_copies = False  # whether a killed task leaves the local copy of its file
        self._out.mkdir(parents=True)
        self._starts = 0

    def start(self, nth: int = 0, *, is_done: bool = False, what: str = "") -> Ended:
        """Run the program until it dies at its nth change, or is done; see ``Death``."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        count = folder / "changes"
        count.touch()
        death = Death(self.job, str(count), nth, is_done, what)
        program = Program(
            folder,
            _SCRIPT.format(self._name, str(self._out), death),
            "--spark_master_url=local[2]",
            "--spark_class_archive=off",
            "--batch_job_recovery",
            f"--checkpoint_dir={self.job}",
            f"--parallelism={2 + self._starts % 2}",
            *self.flags,
            **self.environment,
        )
        return program.end(600, jvm_was_killed=self.leaves_copies)

    @property
    def changes(self) -> int:
        """How many changes the last start has made."""
        return (self._folder / f"start-{self._starts}" / "changes").stat().st_size

    def check(self, ended: Ended) -> None:
        """Check what all starts have made."""
        assert ended.code == 0, ended.err
        files = [file for file in self._out.rglob("*") if file.is_file()]
        lines = Counter(line for file in files for line in file.read_text().splitlines())
        if self._name == "sums":
            total = sum(range(ELEMENTS))
            expected = [f"({x}, {sum(range(x, ELEMENTS, KEYS))}) of {total}" for x in range(KEYS)]
            assert lines == Counter(expected)
            assert ended.out.splitlines()[-1] == str({"elements": KEYS})
        else:
            assert len(lines) == ELEMENTS
            assert set(lines.values()) == {2}
            assert ended.out.splitlines()[-1] == str({"elements": ELEMENTS})
        assert not [each for each in self._out.iterdir() if each.is_dir()]
        assert self.left() == []

    def left(self) -> list[str]:
        """Return the names of what is left in the folder of the job."""
        return [each.name for each in Path(self.job).iterdir()]


@pytest.mark.parametrize("name", PIPELINES)
def test_kills_of_the_driver_change_nothing(tmp_path: Path, name: str) -> None:
    undisturbed = Runs(tmp_path / "undisturbed", name)
    undisturbed.check(undisturbed.start())
    changes = undisturbed.changes
    chance = random.Random(f"{name} {KILLS}")
    for number in range(-(-KILLS // len(PIPELINES))):
        runs = Runs(tmp_path / f"job {number}", name)
        for _ in range(2):
            ended = runs.start(chance.randrange(1, changes + 1), is_done=chance.random() < 0.5)
            if not ended.code:
                break
            assert ended.code == -signal.SIGKILL, ended.err
        runs.check(runs.start() if ended.code else ended)

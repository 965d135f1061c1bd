"""Streaming pipelines that have changed, whose program is killed while they are migrated.

A run of one version is killed after some epochs. The next run, with other steps or another number
of partitions, is killed at each moment of its migration. A third one continues, and what all
of them have written must be what one undisturbed run writes.
"""

import json
import os
import signal
import textwrap
from pathlib import Path

import pytest

from integration.migrating_driver import Orders
from integration.migration_kills import IN_MIGRATIONS
from integration.stream_kills import Driving, check_leftovers
from integration.streams import GATHERS, KEYS, RENAMED, check_files
from integration.waiting import newest_epoch
from tests.cli.programs import Ended, Program

pytestmark = pytest.mark.timeout(3600)

COUNT = 24
EPOCHS = 3
"""Of the first version."""
CHANGES = {"partitions": (2, 3, False), "steps": (2, 2, True), "both": (3, 2, True)}
"""From how many partitions to how many, and whether steps change."""
CHOSEN = [*CHANGES] if "STREAM_KILLS" in os.environ else ["both"]
_BEFORE_ITS_FIRST_EPOCH = Driving.RAN.name, 2
_AFTER_ITS_FIRST_EPOCH = Driving.SWEEPING.name, 2
MOMENTS = [
    (Driving.CLAIMED.name, 1),
    *((each.name, 1) for each in IN_MIGRATIONS),
    (Driving.RAN.name, 1),  # of the tasks of the migration
    (Driving.WRITTEN.name, 1),
    (Driving.COMMITTED.name, 1),
    _BEFORE_ITS_FIRST_EPOCH,
    _AFTER_ITS_FIRST_EPOCH,
]
CHOSEN_MOMENTS = MOMENTS if "STREAM_KILLS" in os.environ else [(Driving.RAN.name, 1), MOMENTS[-1]]
_SCRIPT = """
    from integration.migrating_driver import Orders, main
    main(OPTIONS[1:], Orders({}))
    """


class Runs:
    """One pipeline, and its runs."""

    def __init__(self, folder: Path, change: str) -> None:
        self._folder = folder
        self._before, self._after, self._changes_steps = CHANGES[change]
        self.checkpoints, self.out = folder / "checkpoints", folder / "out"
        self.out.mkdir()
        self._count = 0

    def first(self) -> Ended:
        """Run the first version until it is killed in front of the commit of an epoch."""
        return self._run(Driving.RAN.name, EPOCHS + 1, self._before, is_changed=False)

    def second(self, moment: str = "", nth: int = 1) -> Ended:
        """Run the second version until it is killed at a moment, or is done."""
        return self._run(moment, nth, self._after, is_changed=self._changes_steps)

    def back(self) -> Ended:
        """Run the second version, with the first one's number of partitions, until it is done."""
        return self._run("", 1, self._before, is_changed=self._changes_steps)

    def _run(self, moment: str, nth: int, parallelism: int, *, is_changed: bool) -> Ended:
        orders = Orders(moment, nth, is_changed, COUNT, str(self.out))
        self._count += 1
        folder = self._folder / f"run-{self._count}"
        folder.mkdir()
        print(orders, parallelism)
        flags = [f"--transform_name_mapping={json.dumps({GATHERS: RENAMED})}"] if is_changed else []
        program = Program(
            folder,
            textwrap.dedent(_SCRIPT.format(", ".join(map(repr, orders)))),
            *("--spark_master_url=local[2]", "--batch_interval_millis=100"),
            f"--checkpoint_dir={self.checkpoints}",
            f"--parallelism={parallelism}",
            *flags,
        )
        return program.end(1200)


@pytest.mark.parametrize("change", CHOSEN)
@pytest.mark.parametrize(("moment", "nth"), CHOSEN_MOMENTS)
def test_a_kill_in_a_migration_changes_nothing(
    tmp_path: Path, change: str, moment: str, nth: int
) -> None:
    runs = Runs(tmp_path, change)
    killed = runs.first()
    assert killed.code == -signal.SIGKILL, killed.err
    assert newest_epoch(runs.checkpoints) == EPOCHS
    killed = runs.second(moment, nth)
    assert killed.code == -signal.SIGKILL, killed.err  # else the moment has not come
    # Whoever continues may have the new number of partitions again, or the old one.
    ended = runs.back() if MOMENTS.index((moment, nth)) % 2 else runs.second()
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1] == str({"elements": KEYS * COUNT})
    check_files(runs.out, COUNT)
    check_leftovers(runs.checkpoints)

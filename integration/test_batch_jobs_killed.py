"""Batch jobs whose program is killed at any of its changes, until they are done."""

import json
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from integration.batch_deaths import Death
from integration.batch_driver import (
    COUNTED,
    ELEMENTS,
    KAFKA_SINK,
    PIPELINES,
    TO_FILES,
    check_lines,
)
from integration.kafka_broker import start_broker
from integration.kafka_pipelines import numbers_in, numbers_to
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

    def __init__(
        self, folder: Path, name: str, check_output: Callable[[str, Path], None] = check_lines
    ) -> None:
        self._folder, self._name, self._check_output = folder, name, check_output
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
        self._check_output(self._name, self._out)
        assert ended.out.splitlines()[-1] == str({"elements": COUNTED[self._name]})
        assert not [each for each in self._out.iterdir() if each.is_dir()]
        assert self.left() == []

    def left(self) -> list[str]:
        """Return the names of what is left in the folder of the job."""
        return [each.name for each in Path(self.job).iterdir()]


def dies_and_continues(make: Callable[[str], Runs], kills: int, chance: random.Random) -> None:
    """Kill jobs at random changes, until they are done; check each.

    Args:
        make: Makes a job with a name.
        kills: How many jobs are killed, each once or twice.
        chance: Chooses the changes.
    """
    undisturbed = make("undisturbed")
    undisturbed.check(undisturbed.start())
    changes = undisturbed.changes
    for number in range(kills):
        runs = make(f"job {number}")
        for _ in range(2):
            ended = runs.start(chance.randrange(1, changes + 1), is_done=chance.random() < 0.5)
            if not ended.code:
                break
            assert ended.code == -signal.SIGKILL, ended.err
        runs.check(runs.start() if ended.code else ended)


@pytest.mark.parametrize("name", TO_FILES)
def test_kills_of_the_driver_change_nothing(tmp_path: Path, name: str) -> None:
    dies_and_continues(
        lambda job: Runs(tmp_path / job, name),
        -(-KILLS // len(PIPELINES)),
        random.Random(f"{name} {KILLS}"),
    )


def test_records_are_written_to_kafka_once(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with start_broker(tmp_path / "broker") as broker:

        def make(job: str) -> Runs:
            topic = broker.create(job.replace(" ", "-"), 2)

            def check(_: str, __: Path) -> None:
                assert numbers_in(broker.records(topic)) == numbers_to(ELEMENTS)

            runs = Runs(tmp_path / job, "to Kafka", check)
            runs.environment = {KAFKA_SINK: json.dumps([broker.config, topic, topic])}
            return runs

        kills = -(-KILLS // len(PIPELINES))
        dies_and_continues(make, kills, random.Random(f"to Kafka {KILLS}"))

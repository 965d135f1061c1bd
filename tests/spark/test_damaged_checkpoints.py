"""Streaming pipelines whose checkpoint lacks files."""

from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.errors import CorruptDeltaError, FencedError
from beam_spark_runner.job.checkpoint_folder import CheckpointFolder
from beam_spark_runner.recovery.commit import claim
from tests.harness.processes import wait_for
from tests.spark.endless import (
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_goes_on")]


class Committed:
    """A pipeline that has committed its elements, was cancelled, and has nothing due for long."""

    def __init__(self, session: Any, folder: Path) -> None:
        seen, ended = folder / "seen", folder / "ended"
        for each in (seen, ended):
            each.mkdir()
        self.checkpoints = folder / "checkpoints"
        self._session, self._build = session, windows_and_timers(seen, ended)
        first = self.start()
        wait_for(lambda: len(noted(seen)) == 6)
        before = self.newest("*.manifest")
        wait_for(lambda: self.newest("*.manifest") != before)
        first.cancel()

    def newest(self, pattern: str) -> Path | None:
        return max(self.checkpoints.glob(pattern), default=None)

    def start(self, *flags: str) -> Any:
        checkpoints = f"--checkpoint_dir={self.checkpoints}"
        return started(self._session, self._build, checkpoints, *flags)

    def delete_deltas(self) -> set[str]:
        deltas = {each.name for each in self.checkpoints.glob("*.delta")}
        for name in deltas:
            (self.checkpoints / name).unlink()
        return deltas


@pytest.fixture
def committed(spark_session: Any, tmp_path: Path) -> Committed:
    return Committed(spark_session, tmp_path)


def test_a_delta_that_was_deleted_is_named(committed: Committed) -> None:
    deltas = committed.delete_deltas()
    second = committed.start("--drain")  # which reads all state at once
    with pytest.raises(CorruptDeltaError, match="cannot be used: there is no such file") as raised:
        second.wait_until_finish()
    assert raised.value.name in deltas


def test_a_driver_that_was_taken_over_says_so_if_its_files_are_gone(committed: Committed) -> None:
    """The other driver deletes what it does not need; here, the test does both."""
    before = committed.newest("*.fence")
    second = committed.start()
    wait_for(lambda: committed.newest("*.fence") != before)
    claim(CheckpointFolder(committed.checkpoints))
    committed.delete_deltas()
    second.drain()
    with pytest.raises(FencedError, match="another program has taken over"):
        second.wait_until_finish()

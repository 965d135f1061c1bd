"""Streaming pipelines whose checkpoint lacks files."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.errors import (
    BundleFailedError,
    CorruptDeltaError,
    DamagedFileError,
    FencedError,
)
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.recovery.commit import claim
from beam_spark_runner.savepoint import main
from tests.harness.processes import wait_for
from tests.harvest import RARE_HARNESSES, harvest
from tests.spark.endless import (
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)

pytestmark = pytest.mark.usefixtures("nothing_goes_on")


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
        return max(self.checkpoints.rglob(pattern), default=None)

    def start(self, *flags: str) -> Any:
        checkpoints = f"--checkpoint_dir={self.checkpoints}"
        return started(self._session, self._build, checkpoints, *flags)

    def delete_deltas(self) -> set[str]:
        deltas = list(self.checkpoints.rglob("*.delta"))
        for delta in deltas:
            delta.unlink()
        return {each.name for each in deltas}


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
    claim(existing_storage(str(committed.checkpoints), "checkpoint_dir"))
    committed.delete_deltas()
    second.drain()
    with pytest.raises(FencedError, match="another program has taken over"):
        second.wait_until_finish()


def flip_a_bit(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_damaged_side_input_is_named_and_no_step_is_blamed(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The side input is written once, and looked up for the life of the pipeline."""
    checkpoints = tmp_path / "checkpoints"
    table = [(f"key {number}", number) for number in range(4_000)]

    def build(p: beam.Pipeline, broken_from: int) -> dict[str, Any]:
        def look_up(number: int, some: dict[str, int]) -> int:
            return some[f"key {number}"] // (number < broken_from)

        events = Stream()
        for number in range(4):
            events.add_elements([TimestampedValue(number, number)])
        side = p | "table" >> beam.Create(table)
        main = p | events.advance_watermark_to_infinity()
        return {"found": main | "look up" >> beam.Map(look_up, AsDict(side))}

    flag = f"--checkpoint_dir={checkpoints}"
    with pytest.raises(BundleFailedError):
        harvest(spark_session, lambda p: build(p, 2), flag, *flags)
    views = {each.name: each for each in checkpoints.rglob("*.view")}
    assert main(["verify", str(checkpoints)]) == 0
    assert "is whole" in capsys.readouterr().out

    for each in views.values():
        flip_a_bit(each, each.stat().st_size // 2)
    with pytest.raises(DamagedFileError) as raised:
        harvest(spark_session, lambda p: build(p, 9), flag, *flags)
    assert Path(raised.value.name).name in views
    assert "look up" not in str(raised.value)
    assert main(["verify", str(checkpoints)]) == 1
    said = capsys.readouterr().out
    assert any(name in said for name in views)
    assert main([flag, f"--savepoint_path={tmp_path / 'saved'}"]) == 1
    assert "cannot be used: the digest of the block" in capsys.readouterr().err

"""When a running stream makes savepoints of itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.job.files.savepoint_folder import SavepointFolder
from beam_spark_runner.job.run.scheduled_savepoints import ScheduledSavepoints
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.options.savepoint_schedule import SavepointSchedule, savepoint_schedule
from tests.unit.job.files.test_savepoint_folder import NOON_S, checkpoint, commit  # noqa: F401


class Said:
    def __init__(self) -> None:
        self.informed: list[str] = []
        self.warned: list[str] = []
        self.inform, self.warn = self.informed.append, self.warned.append


class Stream:
    """A stream with a clock of the test's; savepoints are made at once."""

    def __init__(self, tmp_path: Path, every_s: float = 100, begun_from: str | None = None) -> None:
        self.now_s, self.said = NOON_S, Said()
        self.saved = tmp_path / "saved"
        self.made: list[MadeSavepoint] = []
        self.removed: list[str] = []
        places: Any = ShardLocations(
            lineage="main", deltas=str(tmp_path / "checkpoint"), local=None, key_groups=1
        )
        messages: Any = self.said
        self.savepoints = ScheduledSavepoints(
            SavepointSchedule(str(self.saved), every_s, 2),
            places,
            begun_from,
            messages,
            lambda: self.now_s,
            lambda work: work(),
            self.made.append,
            self.removed.extend,
        )

    def epoch_after(self, seconds: float) -> int:
        """Commit an epoch; return how many savepoints there are."""
        self.now_s += seconds
        self.savepoints.note_epoch()
        return len(list(self.saved.glob("*.savepoint")))


@pytest.mark.usefixtures("checkpoint")
def test_savepoints_are_made_when_they_are_due(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    counts = [stream.epoch_after(seconds) for seconds in (0, 99, 1, 1, 98, 1, 100)]
    assert counts == [0, 0, 1, 1, 1, 2, 2]  # the first one is removed for the third one
    assert len(stream.said.informed) == 3
    assert [(made.epoch, made.at_s) for made in stream.made][-1] == (7, stream.now_s)
    assert len(stream.made) == 3
    assert stream.removed == [stream.made[0].path]
    again = Stream(tmp_path)  # a restart does not change the schedule
    again.now_s = stream.now_s
    assert again.epoch_after(99) == 2
    assert not again.said.informed
    again.epoch_after(1)
    assert len(again.said.informed) == 1
    # Those of the earlier start are known, too, except how large they are.
    assert [made.path for made in again.made[:2]] == [made.path for made in stream.made[1:]]
    assert [made.size_bytes is None for made in again.made] == [True, True, False]


@pytest.mark.usefixtures("checkpoint")
def test_an_error_that_nobody_expects_is_no_try_after_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SavepointFolder, *_: Any) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(SavepointFolder, "make", fail)
    stream = Stream(tmp_path)
    for seconds in (0, 100, 1, 1):
        assert stream.epoch_after(seconds) == 0
    assert stream.said.warned == ["a savepoint by --savepoint_every was not made: odd"]


@pytest.mark.usefixtures("checkpoint")
def test_a_savepoint_that_fails_is_tried_again(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.epoch_after(0)
    manifest = next((tmp_path / "checkpoint").glob("*.manifest"))
    content = manifest.read_bytes()
    manifest.unlink()
    assert stream.epoch_after(100) == 0
    assert "no epoch has been committed" in stream.said.warned[0]
    manifest.write_bytes(content)
    assert stream.epoch_after(59) == 0
    assert stream.epoch_after(1) == 1


@pytest.mark.usefixtures("checkpoint")
def test_what_the_stream_has_begun_from_is_not_removed(tmp_path: Path) -> None:
    first = Stream(tmp_path)
    first.epoch_after(0)
    first.epoch_after(100)
    (begun_from,) = (each for each in first.saved.iterdir() if each.is_dir())
    stream = Stream(tmp_path, begun_from=str(begun_from))
    stream.now_s = first.now_s
    assert [stream.epoch_after(seconds) for seconds in (0, 100, 100, 100)] == [1, 2, 3, 3]
    assert begun_from.exists()


@pytest.mark.usefixtures("checkpoint")
def test_one_savepoint_at_a_time(tmp_path: Path) -> None:
    works: list[Callable[[], None]] = []
    stream = Stream(tmp_path)
    stream.savepoints._start = works.append
    for _ in range(3):
        stream.epoch_after(200)
    assert len(works) == 1


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"savepoint_every": "60"}, "needs a --savepoint_dir"),
        ({"savepoint_dir": "/saved"}, "no effect unless --savepoint_every"),
        ({"savepoint_keep": 2}, "no effect unless --savepoint_every"),
        ({"savepoint_every": "0", "savepoint_dir": "/saved"}, "more than 0"),
        ({"savepoint_every": "9", "savepoint_dir": "/saved", "savepoint_keep": 0}, "positive"),
    ],
)
def test_wrong_options_of_a_schedule_are_errors(given: dict[str, Any], wrong: str) -> None:
    values = type("Values", (), given)()
    with pytest.raises(OptionsError, match=wrong):
        savepoint_schedule(values)


def test_a_schedule_is_read_from_the_options() -> None:
    values = type("Values", (), {"savepoint_every": "60", "savepoint_dir": "/saved"})()
    assert savepoint_schedule(values) == SavepointSchedule("/saved", 60.0, 3)
    assert savepoint_schedule(object()) is None

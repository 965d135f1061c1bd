"""Savepoints of streaming pipelines, and pipelines that begin with them."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import OptionsError, UnsupportedFeatureError
from beam_spark_runner.recovery.savepoint_copy import SavepointExistsError
from beam_spark_runner.savepoint import main
from tests.harness.processes import wait_for
from tests.harvest import RARE_HARNESSES
from tests.spark.endless import (
    WINDOWS_AND_TIMERS,
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)

pytestmark = pytest.mark.usefixtures("nothing_goes_on")


def folders(folder: Path) -> tuple[Path, Path]:
    """Return two new folders, for the elements that are seen, and for what comes at the end."""
    seen, ended = folder / "seen", folder / "ended"
    for each in seen, ended:
        each.mkdir(parents=True)
    return seen, ended


def newest(checkpoints: Path) -> Path | None:
    return max(checkpoints.rglob("*.manifest"), default=None)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_another_pipeline_begins_with_a_savepoint(
    spark_session: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
) -> None:
    """Windows, state, timers, restrictions are in it; the first pipeline continues to its end."""
    checkpoints, savepoint, late = (tmp_path / name for name in ("checkpoints", "saved", "late"))
    seen, ended = folders(tmp_path / "first")
    build = windows_and_timers(seen, ended)
    first = started(spark_session, build, f"--checkpoint_dir={checkpoints}", *flags)
    wait_for(lambda: len(noted(seen)) == 6)
    last = newest(checkpoints)
    wait_for(lambda: newest(checkpoints) != last)
    epoch = first.savepoint(str(savepoint))
    with pytest.raises(SavepointExistsError):
        first.savepoint(str(savepoint))
    with pytest.raises(OptionsError, match=r"savepoint\(path\): ftp://host/folder is none of"):
        first.savepoint("ftp://host/folder")
    first.drain()
    assert first.wait_until_finish() == "DRAINED"
    assert noted(ended) == WINDOWS_AND_TIMERS
    files = {path.name: path.read_bytes() for path in savepoint.iterdir()}
    assert sum(name.endswith(".manifest") for name in files) == 1

    new = [f"--checkpoint_dir={tmp_path / 'new'}", f"--savepoint_path={savepoint}"]
    seen, ended = folders(tmp_path / "second")
    build = windows_and_timers(seen, ended)
    second = started(spark_session, build, *new, "--restart=fresh", "--drain", *flags)
    assert second.wait_until_finish() == "DRAINED"
    assert (noted(seen), noted(ended)) == ([], WINDOWS_AND_TIMERS)
    assert {path.name: path.read_bytes() for path in savepoint.iterdir()} == files

    # The command makes one of what has ended, too.
    paths = [f"--checkpoint_dir={checkpoints}", f"--savepoint_path={late}"]
    assert main(paths) == 0
    end = int(str(newest(checkpoints)).rpartition("-")[2].removesuffix(".manifest"))
    assert end > epoch
    said = f"{late} has the state of the pipeline after epoch {end}\n"
    assert capsys.readouterr().out == said


def test_where_there_is_no_savepoint(spark_session: Any, tmp_path: Path) -> None:
    build = windows_and_timers(*folders(tmp_path))
    missing = f"--savepoint_path={tmp_path / 'missing'}"
    with pytest.raises(OptionsError, match=r"--savepoint_path: there is no folder .*missing"):
        started(spark_session, build, missing).wait_until_finish()
    empty = f"--savepoint_path={tmp_path}"
    with pytest.raises(OptionsError, match="--savepoint_path: there is no savepoint"):
        started(spark_session, build, empty).wait_until_finish()


def test_a_batch_pipeline_has_no_savepoints(spark_session: Any, tmp_path: Path) -> None:
    result = started(spark_session, lambda p: p | beam.Create([1]))
    with pytest.raises(UnsupportedFeatureError, match="a savepoint of a pipeline that runs in"):
        result.savepoint(str(tmp_path))
    assert result.wait_until_finish() == "DONE"


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.mkdir()
    for checkpoints, code, message in (
        ("ftp://host/folder", 2, "--checkpoint_dir: ftp://host/folder is none of"),
        ("hdfs:///folder", 2, "--hdfs_host: must be given, since hdfs:///folder has no host"),
        (str(missing), 2, f"--checkpoint_dir: there is no folder {missing}"),
        (str(empty), 1, "no epoch has been committed yet"),
    ):
        paths = [f"--checkpoint_dir={checkpoints}", f"--savepoint_path={tmp_path / 'saved'}"]
        assert main(paths) == code
        assert message in capsys.readouterr().err
    assert not missing.exists()

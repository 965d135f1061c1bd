"""What is said of a streaming pipeline that was ended."""

from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.job.files.last_commit import warn_of_last_commit
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.manifest import manifest_name
from tests.unit.recovery.drivers import commit, start
from tests.unit.recovery.files import Files


def said(folder: Path | None, *flags: str) -> list[str]:
    """Return what is said of a job with this --checkpoint_dir."""
    flags = flags if folder is None else (*flags, f"--checkpoint_dir={folder}")
    config = RunnerConfig.from_options(PipelineOptions([*flags]))
    places = ShardLocations(lineage="main", deltas=str(folder), local=None, key_groups=128)
    found: list[str] = []
    warn_of_last_commit(config, places, found.append)
    warn_of_last_commit(config, None, found.append)  # nothing
    return found


def test_the_last_committed_epoch_is_said(tmp_path: Path) -> None:
    where = f"--checkpoint_dir={tmp_path}"
    assert said(tmp_path) == [
        f"no epoch was committed in {where}: the same command starts from the beginning"
    ]
    files = Files()
    driver = start(files)
    for _ in range(2):
        commit(driver, files)
    for name, content in files.files.items():
        (tmp_path / name).write_bytes(content)
    assert said(tmp_path) == [f"the same command continues after epoch 2, the last one in {where}"]
    assert said(tmp_path, "--restart=fresh") == [
        f"without --restart=fresh, the same command continues after epoch 2 of {where}"
    ]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    name = manifest_name("main", 3)
    (tmp_path / name).write_bytes(b"x")
    (text,) = said(tmp_path)
    assert text.startswith(
        f"the last committed epoch in --checkpoint_dir={tmp_path} cannot be read: "
    )
    assert name in text


def test_nothing_is_said_of_what_is_not_kept() -> None:
    assert said(None) == []

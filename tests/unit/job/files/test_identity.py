"""The name and the folder of a job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.job.files.identity import folder_of, make_folder, new_job_id
from beam_spark_runner.options import RunnerConfig


def session(*, is_local: bool, local_folder: str | None = None) -> Any:
    return SimpleNamespace(is_local=is_local, local_folder=lambda: local_folder)


def test_no_two_jobs_have_one_id() -> None:
    assert len({new_job_id() for _ in range(1_000)}) == 1_000


@pytest.mark.parametrize(
    ("storage", "where", "folder"),
    [
        ("/shared", session(is_local=False), Path("/shared/beam-a1")),
        ("/shared", session(is_local=True, local_folder="/spark"), Path("/shared/beam-a1")),
        (None, session(is_local=True, local_folder="/spark"), Path("/spark/beam-a1")),
        (None, session(is_local=False), None),
        ("s3://bucket", session(is_local=False), None),
    ],
)
def test_the_folder_follows_from_id_and_storage(
    storage: str | None, where: Any, folder: Path | None
) -> None:
    config = RunnerConfig(shared_storage=storage)
    assert folder_of("a1", config, where) == folder
    assert folder_of("a1", config, where) == folder


def test_a_relative_folder_stays_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folder_of("a1", RunnerConfig(shared_storage="here"), session(is_local=False))
    assert folder == tmp_path / "here" / "beam-a1"


def test_a_folder_that_somebody_else_has_made_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "beam-a1"
    make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        make_folder(folder)

"""The name and the folder of a job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.job.identity import folder_of, new_job_id
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

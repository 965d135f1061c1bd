"""Batch jobs whose folder is in S3, Azure or HDFS, and whose program is killed again and again."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.options.values import checkpoint_folder
from integration.checkpoint_store import CheckpointStore
from integration.started_store import start_store
from integration.test_batch_jobs_killed import Runs

pytestmark = pytest.mark.timeout(1500)

MOMENTS = {
    "the job is submitted": (1, r"create /\w+\.submission", True),  # the next start withdraws it
    "the job has begun": (1, r"create /\w+\.decision", True),
    "the fence is claimed": (1, r"create /\d+\.fence", True),
    "rows are being stored": (2, r"put\w* /work-\d+/\S+\.rows", False),
    "a task has finished": (3, r"create /work-\d+/\S+\.done", True),
    "a Spark job has ended": (1, r"create /batch-\d+\.manifest", False),
    "its output is committed": (2, r"create /batch-\d+\.manifest", True),
    "files of an earlier commit are removed": (1, r"remove /work-", True),
    "all has run": (1, r"create /ended", True),
    "half of the folder is removed": (2, r"remove /", True),
}


@pytest.fixture(scope="module", params=["S3", "Azure", "HDFS"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CheckpointStore]:
    with start_store(request.param, tmp_path_factory.mktemp("store")) as running:
        yield running


class RunsInAStore(Runs):
    """See ``Runs``: the folder of the job is in a store."""

    def __init__(self, store: CheckpointStore, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        job = checkpoint_folder("here", store.folder("job"))
        assert job is not None
        self.job, self._store = job, store
        self.flags, self.environment = store.checkpoint_flags, store.environment
        self.leaves_copies = True

    def left(self) -> list[str]:
        job = JobFolderAt(self.job, self._store.settings)
        return [*job.storage.names(), *job.folders()]


def test_killed_programs_change_nothing(store: CheckpointStore, tmp_path: Path) -> None:
    runs = RunsInAStore(store, tmp_path, "sums")
    for moment, (nth, what, is_done) in MOMENTS.items():
        ended = runs.start(nth, is_done=is_done, what=what)
        assert ended.code == -signal.SIGKILL, f"{moment}: {ended.err}"
    runs.check(runs.start())

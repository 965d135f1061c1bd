"""Batch jobs on a standalone cluster, whose program is killed again and again."""

import signal
from pathlib import Path

import pytest

from integration.cluster import Cluster
from integration.test_batch_jobs_killed import Runs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

MOMENTS = {
    "the fence is claimed": (1, r"create /\d+\.fence", True),
    "a Spark job has ended": (2, r"create /batch-\d+\.manifest", False),
    "its output is committed": (2, r"create /batch-\d+\.manifest", True),
    "all has run": (1, r"create /ended", True),
}


def test_killed_programs_change_nothing(cluster: Cluster, tmp_path: Path) -> None:
    runs = Runs(tmp_path, "sums")
    conf = (f"--spark_conf={key}={value}" for key, value in cluster.conf.items() if value)
    runs.flags = [f"--spark_master_url={cluster.master_url}", *conf]
    runs.environment = cluster.environment
    for moment, (nth, what, is_done) in MOMENTS.items():
        ended = runs.start(nth, is_done=is_done, what=what)
        assert ended.code == -signal.SIGKILL, f"{moment}: {ended.err}"
    runs.check(runs.start())

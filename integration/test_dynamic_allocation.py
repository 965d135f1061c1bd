"""A streaming pipeline on a cluster whose executors go when they are idle, and come back."""

import threading
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, Cluster, wait_for_executors
from integration.pipelines import counters
from integration.running import run
from integration.streams import KEYS, ticks_until
from integration.waiting import newest_epoch, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONF = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "2",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    # Else executors stay that keep a row of an anchor.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    **QUICK,
}


def test_executors_that_go_and_come(cluster: Cluster, tmp_path: Path) -> None:
    checkpoints, end = tmp_path / "checkpoints", tmp_path / "end"
    idle, busy = (Path(f"{end}.{kind}") for kind in ("idle", "busy"))
    numbers: list[int] = []

    def script() -> None:
        def epochs_pass(count: int) -> None:
            until = newest_epoch(checkpoints) + count
            wait_until(lambda: newest_epoch(checkpoints) >= until, f"epoch {until}")

        try:
            for _ in range(2):
                epochs_pass(3)
                idle.touch()
                wait_until(lambda: len(cluster.executors()) == 1, "an executor to go")
                numbers.append(1)
                idle.unlink()
                busy.touch()
                wait_until(lambda: len(cluster.executors()) == 2, "an executor to come")
                numbers.append(2)
                epochs_pass(2)
                busy.unlink()
        finally:
            end.touch()

    thread = threading.Thread(target=script, daemon=True)
    with cluster.session("dynamic allocation", CONF) as session:
        wait_for_executors(session)
        thread.start()
        result = run(
            session,
            lambda p: ticks_until(p, str(end)),
            "--parallelism=6",
            f"--checkpoint_dir={checkpoints}",
            f"--temp_location={tmp_path / 'temp'}",
            "--batch_interval_millis=100",
        )
        thread.join(60)
    assert numbers == [1, 2, 1, 2]
    counts: dict[str, Any] = counters(result)
    assert counts["ticks"] == counts["counted"] >= KEYS

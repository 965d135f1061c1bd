"""The tasks of a streaming pipeline on a cluster come back to where their state is."""

import functools
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.job.run import clusters
from beam_spark_runner.spark.driver.cluster import SparkClusterSettings
from integration.cluster import QUICK, Cluster, start_cluster, wait_for_executors
from integration.pipelines import Counted, counters
from integration.running import run
from integration.streams import KEYS, check_files, played, sources_to_files, ticks_until
from integration.strikes import kill
from integration.waiting import newest_epoch, wait_until
from tests.segments import cut_at_each_exchange

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

HOSTS = 3
PARTITIONS = 6
COUNT = 16
CONF = {
    "spark.executor.cores": "1",
    "spark.locality.wait": "60s",  # no executor is so slow that its tasks go elsewhere
    **QUICK,
}


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cluster]:
    """A cluster whose workers have one slot each: two tasks, one after the other."""
    with start_cluster(workers=HOSTS, slots=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(hosts: Cluster) -> Iterator[Any]:
    """A session that has an executor on each host."""
    with hosts.session("anchors", CONF) as session:
        wait_for_executors(session, HOSTS)
        yield session


def rebuilt(caplog: pytest.LogCaptureFixture) -> dict[int, int]:
    """Return epoch -> how many of its shards were rebuilt, where some were."""
    found = (
        re.match(r"epoch (\d+): (\d+) of \d+ shards rebuilt", text) for text in caplog.messages
    )
    return {int(match[1]): int(match[2]) for match in found if match}


@pytest.mark.parametrize(
    ("is_anchored", "is_cut"),
    [
        pytest.param(True, False, id="anchored"),
        pytest.param(True, True, id="anchored, a Spark job for each exchange"),
        pytest.param(False, False, id="anywhere"),
    ],
)
def test_no_shard_is_rebuilt(
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_anchored: bool,
    is_cut: bool,
) -> None:
    caplog.set_level(logging.INFO, "beam_spark_runner")
    if is_cut:
        cut_at_each_exchange(monkeypatch)
    if not is_anchored:
        without = functools.partial(_without_anchors, SparkClusterSettings)
        monkeypatch.setattr(clusters, "SparkClusterSettings", without)
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
    out.mkdir()
    passing_on = [Counted(name) for name in ("sources", "state", "sink")]
    run(
        session,
        lambda p: sources_to_files(p, COUNT, str(out), passing_on, pairs=played(COUNT)),
        f"--parallelism={PARTITIONS}",
        f"--checkpoint_dir={checkpoints}",
        f"--temp_location={tmp_path / 'temp'}",
    )
    check_files(out, COUNT)
    print(f"{newest_epoch(checkpoints)} epochs; shards rebuilt: {sum(rebuilt(caplog).values())}")
    assert bool(rebuilt(caplog)) is not is_anchored


def _without_anchors(settings: Any, **fields: Any) -> SparkClusterSettings:
    made: SparkClusterSettings = settings(**{**fields, "is_anchored": False})
    return made


def test_an_executor_that_is_lost_and_replaced(
    hosts: Cluster, session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partitions go to the others, then to the new one; then nothing moves any more."""
    caplog.set_level(logging.INFO, "beam_spark_runner")
    checkpoints, end = tmp_path / "checkpoints", tmp_path / "end"
    quiet: list[int] = []

    def lose_one() -> None:
        def epochs_pass(count: int) -> int:
            until = newest_epoch(checkpoints) + count
            wait_until(lambda: newest_epoch(checkpoints) >= until, f"epoch {until}")
            return until

        try:
            epochs_pass(4)
            kill(hosts.executors()[0])
            wait_until(
                lambda: any("partitions are redistributed" in text for text in caplog.messages),
                "another anchor",
            )
            wait_for_executors(session, HOSTS)
            quiet.append(epochs_pass(2))
            epochs_pass(6)
        finally:
            end.touch()

    script = threading.Thread(target=lose_one, daemon=True)
    script.start()
    result = run(
        session,
        lambda p: ticks_until(p, str(end)),
        f"--parallelism={PARTITIONS}",
        f"--checkpoint_dir={checkpoints}",
        f"--temp_location={tmp_path / 'temp'}",
        "--batch_interval_millis=100",
    )
    script.join(60)
    print(rebuilt(caplog))
    counts = counters(result)
    assert counts["ticks"] == counts["counted"] >= KEYS
    assert quiet
    assert not [epoch for epoch in rebuilt(caplog) if epoch > quiet[0]]

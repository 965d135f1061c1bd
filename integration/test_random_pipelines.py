"""Random pipelines while executors die at random moments: nothing is lost, nothing doubled."""

import os
import random
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from beam_spark_runner import SparkPortableRunner
from integration.cluster import Cluster
from tests.spark.random_pipelines.recipes import Recipe, packs
from tests.spark.random_pipelines.running import (
    SMALL_MEMORY,
    by_beams_runner,
    by_our_runner,
    check_same,
)

pytestmark = pytest.mark.cluster

COUNT = int(os.environ.get("RANDOM_PIPELINES", "25"))
PACK = 5


@pytest.mark.timeout(60 * COUNT)
def test_like_beams_own_runner_although_executors_die(
    cluster: Cluster, cluster_session: Any
) -> None:
    chance = random.Random(3)
    ran: list[int] = []

    @settings(
        max_examples=COUNT // PACK,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(pack=packs(PACK))
    def compare(pack: dict[int, Recipe]) -> None:
        beams, pack = by_beams_runner(pack)
        which = chance.randrange(100)
        timer = threading.Timer(chance.uniform(0.2, 4), cluster.kill_executor, [which])
        timer.start()
        try:
            ours = by_our_runner(SparkPortableRunner(cluster_session), pack, *SMALL_MEMORY)
        finally:
            timer.cancel()
        check_same(ours, beams, pack)
        ran.append(len(pack))

    before = len(cluster.killed)
    compare()
    killed = len(cluster.killed) - before
    print(f"{sum(ran)} pipelines, {killed} executors killed")
    assert sum(ran) >= 0.9 * COUNT, "Beam's runner gave up on the others"
    assert killed >= COUNT // PACK

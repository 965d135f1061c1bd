"""Random pipelines while an executor dies at a random moment: nothing is lost, nothing doubled."""

import random
import threading
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, Phase, given, settings

from beam_spark_runner import SparkPortableRunner
from integration.cluster import Cluster
from tests.spark.random_pipelines import Recipe, check_same, elements_of, packs

pytestmark = pytest.mark.cluster

COUNT, PACK = 50, 5


@pytest.mark.timeout(1800)
def test_like_beams_own_runner_although_an_executor_dies(
    cluster: Cluster, cluster_session: Any
) -> None:
    chance = random.Random(3)

    @settings(
        max_examples=COUNT // PACK,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(pack=packs(PACK))
    def compare(pack: list[Recipe]) -> None:
        which = chance.randrange(100)
        timer = threading.Timer(chance.uniform(0.2, 4), cluster.kill_executor, [which])
        timer.start()
        try:
            ours = elements_of(SparkPortableRunner(cluster_session), pack)
        finally:
            timer.cancel()
        check_same(ours, elements_of(FnApiRunner(), pack), pack)

    before = len(cluster.killed)
    compare()
    print(f"{len(cluster.killed) - before} executors killed")
    assert len(cluster.killed) - before >= COUNT // PACK

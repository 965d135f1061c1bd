"""Spark runs slow tasks twice: only one attempt's elements, and residuals, count."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import Cluster
from integration.pipelines import counters
from integration.restrictions import TakeSteps, steps
from integration.test_cluster import run

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def speculating_session(cluster: Cluster) -> Iterator[Any]:
    from beam_spark_runner.spark.launch import start_classic

    before = dict(os.environ)
    os.environ.update(cluster.environment)
    conf = {
        **cluster.conf,
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    session = start_classic(cluster.master_url, "speculation", conf)
    os.environ.clear()
    os.environ.update(before)
    yield session
    session.stop()


@pytest.mark.parametrize("defers_every", [0, 15])
def test_every_step_counts_once(
    speculating_session: Any, tmp_path: Path, defers_every: int
) -> None:
    elements = {"long": 150, "short": 10}
    result = run(
        speculating_session,
        lambda p: steps(p, elements, TakeSteps(str(tmp_path / "never"), -1, defers_every)),
        "--sdf_round_budget=1",
        "--parallelism=4",
        f"--temp_location={tmp_path}",
    )
    assert counters(result) == {"steps": 160, "names": 2}
    attempted = {
        found.key.metric.name: found.attempted for found in result.metrics().query()["counters"]
    }
    print("attempted", attempted)

"""Spark runs slow tasks twice: only one attempt's elements, and residuals, count."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from integration.cluster import Cluster
from integration.pipelines import counters
from integration.restrictions import TakeSteps, steps
from integration.running import run

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def speculating_session(cluster: Cluster) -> Iterator[Any]:
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
    }
    with cluster.session("speculation", conf) as session:
        yield session


@pytest.mark.parametrize("defers_every", [0, 15])
def test_every_step_counts_once(
    speculating_session: Any, tmp_path: Path, defers_every: int
) -> None:
    before = _second_copies(speculating_session)
    elements = {"long": 150, "short": 10}
    result = run(
        speculating_session,
        lambda p: steps(p, elements, TakeSteps(str(tmp_path / "never"), -1, defers_every)),
        "--sdf_round_budget=1",
        "--parallelism=4",
        f"--temp_location={tmp_path}",
    )
    assert counters(result) == {"steps": 160, "names": 2}
    assert _second_copies(speculating_session) > before, "Spark saw nothing slow"


def _second_copies(session: Any) -> int:
    """How many second copies of tasks Spark has started."""
    store = session.sparkContext._jsc.sc().statusStore()
    copies = 0
    for stage in range(200):
        with contextlib.suppress(Py4JJavaError):  # a stage that was skipped, or is to come
            tasks = store.taskList(stage, 0, 100)
            copies += sum(tasks.apply(i).speculative() for i in range(tasks.size()))
    return copies

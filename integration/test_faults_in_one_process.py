"""Executors that die on ``local-cluster[…]``: children of the driver's JVM."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, Cluster, local_cluster
from integration.kills import run_with_a_kill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return local_cluster()


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    with cluster.session("faults", QUICK) as session:
        yield session


@pytest.mark.parametrize("number", range(int(os.environ.get("KILLS", "24")) // 4))
def test_a_kill_costs_no_element(
    cluster: Cluster, session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    run_with_a_kill(cluster, session, tmp_path, caplog, number)

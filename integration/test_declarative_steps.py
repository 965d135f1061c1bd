"""Declarative steps on a standalone cluster and on Spark Connect: the same as in one process."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import Cluster
from tests.declared_packs import check, in_batch, in_epochs
from tests.declared_pipelines import draw_pack
from tests.harvest import REUSED_PROCESS, SPREAD, harvest

PACK = 10
FLAGS = (SPREAD, "--parallelism=3", "--max_parallelism=8")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("cluster", marks=pytest.mark.cluster),
        pytest.param("connect", marks=pytest.mark.connect),
    ],
)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session on a cluster, or on a Connect server."""
    if request.param == "cluster":
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.session("declarative") as classic:
            yield classic
    else:
        from pyspark.sql.connect.session import SparkSession

        remote = SparkSession.builder.remote(request.getfixturevalue("connect_server")).create()
        yield remote
        remote.stop()


@pytest.mark.parametrize("harness", [(), REUSED_PROCESS], ids=["embedded", "process"])
def test_in_batch(session: Any, harness: tuple[str, ...]) -> None:
    recipes = draw_pack(random.Random(1), PACK)
    check(harvest(session, in_batch(recipes), *FLAGS, *harness), recipes)


@pytest.mark.parametrize("harness", [(), REUSED_PROCESS], ids=["embedded", "process"])
def test_in_epochs(session: Any, harness: tuple[str, ...], tmp_path: Path) -> None:
    recipes = draw_pack(random.Random(2), PACK)
    folders = f"--temp_location={tmp_path}", f"--checkpoint_dir={tmp_path / 'checkpoint'}"
    check(harvest(session, in_epochs(recipes), "--streaming", *folders, *FLAGS, *harness), recipes)

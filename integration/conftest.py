"""Fixtures of the integration tests: clusters and servers, each in separate processes."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from integration.cluster import Cluster, start_cluster
from integration.container_engine import DOCKER, PODMAN, Engine
from tests.conftest import connect_server  # noqa: F401  (a fixture)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A standalone cluster: two workers of three slots, which run this Python."""
    with start_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def cluster_session(cluster: Cluster) -> "Iterator[SparkSession]":
    """A session on the cluster."""
    with cluster.session("integration") as session:
        yield session


@pytest.fixture(scope="module")
def local_session() -> "Iterator[SparkSession]":
    """A local session; a process has one Spark at a time, and the next module wants another."""
    from beam_spark_runner.spark.session.launch import start_classic

    session = start_classic("local[2]", "integration", {"spark.ui.enabled": "false"})
    yield session
    session.stop()


@pytest.fixture(scope="module", params=[DOCKER, PODMAN], ids=lambda engine: engine.program)
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """What runs containers here, with all that images are made with."""
    chosen: Engine = request.param
    if missing := chosen.why_not("go", "debootstrap"):
        pytest.skip(missing)
    with pytest.MonkeyPatch.context() as patch:
        if chosen == PODMAN:
            # By default podman raises limits as far as the kernel has them, which root may not do
            # everywhere.
            settings = tmp_path_factory.mktemp("podman") / "containers.conf"
            settings.write_text(
                '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
            )
            patch.setenv("CONTAINERS_CONF", str(settings))
        yield chosen

"""Elements of classes of the program's main module, on a cluster and on Spark Connect."""

from pathlib import Path

import pytest

from integration.cluster import Cluster
from tests.spark.main_classes import run_kinds

both_libraries = pytest.mark.parametrize("library", ["cloudpickle", "dill"])


@pytest.mark.cluster
@both_libraries
def test_on_a_cluster(cluster: Cluster, tmp_path: Path, library: str) -> None:
    run_kinds(
        tmp_path,
        library,
        master=cluster.master_url,
        conf=cluster.conf,
        environment=cluster.environment,
    )


@pytest.mark.connect
@both_libraries
def test_on_spark_connect(connect_server: str, tmp_path: Path, library: str) -> None:
    run_kinds(tmp_path, library, environment={"SPARK_REMOTE": connect_server})

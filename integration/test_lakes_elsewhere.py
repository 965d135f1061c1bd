"""Delta and Iceberg on Spark Connect and on a cluster, see ``test_lakes``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import QUICK, end_jvm, start_cluster, wait_for_executors
from integration.lakes import KINDS, NEEDS_PACKAGES, VERSION, Table, conf_in, drop, overwrites
from integration.table_pipelines import check_failures, check_killed, check_modes
from tests.connect_server import start_connect_server

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900), NEEDS_PACKAGES]


@pytest.fixture(scope="module")
def lake_on_a_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Any, Any, Path]]:
    end_jvm()
    home = tmp_path_factory.mktemp("lakes")
    with start_cluster() as cluster, cluster.session("lakes", {**conf_in(home), **QUICK}) as it:
        it.sql("CREATE NAMESPACE lake.db")
        yield cluster, it, home


@pytest.mark.connect
def test_spark_connect(tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    with start_connect_server(tmp_path / "log", conf=conf_in(tmp_path)) as url:
        session: Any = SparkSession.builder.remote(url).create()
        flags = (f"--temp_location={tmp_path}/temp",) if VERSION < (4, 0) else ()
        try:
            session.sql("CREATE NAMESPACE lake.db").collect()
            for kind in filter(overwrites, KINDS):
                at = tmp_path / kind
                at.mkdir()
                table = Table(session, tmp_path, at, kind, flags)
                check_modes(table.target)
                check_failures(table.target)
        finally:
            session.stop()


@pytest.mark.parametrize("kind", ["delta path", "iceberg table"])
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_an_executor_dies_in_the_middle_of_a_write(
    lake_on_a_cluster: tuple[Any, Any, Path], tmp_path: Path, kind: str, mode: str
) -> None:
    cluster, session, home = lake_on_a_cluster
    drop(session)
    table = Table(session, home, tmp_path, kind)
    if mode != "error":
        table.target.write(range(5))
    wait_for_executors(session)
    check_killed(table.target, table.folder, mode, cluster.kill_executor)
    if mode == "append" or kind == "delta path":
        assert len(table.commits()) == (1 if mode == "error" else 2)

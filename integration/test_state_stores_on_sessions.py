"""Streams with a state store on a cluster and on Spark Connect; also on Spark 3.5."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from beam_spark_runner.spark.versions import SparkVersion
from integration.cluster import Cluster
from tests.connect_server import start_connect_server
from tests.counting_streams import EPOCHS, KEYS, failing, pipeline
from tests.harvest import harvest
from tests.state_store.servers import redis_server

_SERVER_OF_3_5 = f"org.apache.spark:spark-connect_2.12:{pyspark.__version__}"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("cluster", marks=pytest.mark.cluster),
        pytest.param("connect", marks=pytest.mark.connect),
    ],
)
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A session on a cluster of two executors, or on a Connect server."""
    if request.param == "cluster":
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.session("state stores") as classic:
            yield classic
        return
    from pyspark.sql.connect.session import SparkSession

    is_old = SparkVersion.parse(pyspark.__version__) < (4, 0)
    log = tmp_path_factory.mktemp("connect") / "server.log"
    with start_connect_server(log, package=_SERVER_OF_3_5 if is_old else None) as url:
        remote: Any = SparkSession.builder.remote(url).create()
        yield remote
        remote.stop()


def test_a_stream_continues_with_its_keys_in_a_state_store(session: Any, tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        flags = (
            f"--state_store={server.url}",
            f"--checkpoint_dir={tmp_path / 'checkpoint'}",
            f"--temp_location={tmp_path / 'temp'}",
        )
        with pytest.raises(RuntimeError, match="stop"):
            harvest(session, failing(3), *flags)
        left: Any = server.client().keys("*")
        groups = {key for key in left if key.startswith(b"bsr:{") and key.endswith(b"}")}
        assert groups
        assert all(server.client().hget(group, "") for group in groups)  # each has its tag
        found = harvest(session, pipeline(lambda: None, None), *flags)
        assert server.client().keys("*") == []
    keys = [f"key {number}" for number in range(KEYS)]
    assert {(key, EPOCHS, -EPOCHS) for key in keys} <= set(found["counts"])
    assert all((key, [4, 5]) in found["groups"] for key in keys)

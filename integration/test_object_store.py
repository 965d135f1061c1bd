"""Shared storage that is an object store: rows, side inputs and packages in S3."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import OptionsError
from integration.checkpoint_store import environment_of
from integration.cluster import QUICK, Cluster, end_jvm, wait_for_executors
from integration.object_store import ObjectStore, start_object_store
from integration.pipelines import Counted, counters, large_side_input, random_keys
from integration.running import run, run_spread
from integration.test_packages import NAME, seen
from tests.connect_server import start_connect_server
from tests.user_packages import sdist

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    log = tmp_path_factory.mktemp("store") / "log"
    with start_object_store(log) as running, environment_of(running):
        yield running


@pytest.fixture(scope="module")
def session(store: ObjectStore, cluster: Cluster) -> Iterator[Any]:
    """A session on a standalone cluster in which executors die often."""
    end_jvm()  # one that runs already would not load the connector
    with cluster.session("object store", {**QUICK, **store.spark_conf}) as spark:
        yield spark


def counted(p: beam.Pipeline) -> None:
    """Two segments: rows of the first one are stored."""
    total = p | beam.Create(range(9), reshuffle=True) | beam.combiners.Count.Globally()
    _ = (
        p
        | "Numbers" >> beam.Create(range(5))
        | beam.Reshuffle()
        | beam.Map(lambda x, n: x + n, beam.pvalue.AsSingleton(total))
        | beam.ParDo(Counted("counted"))
    )


def test_rows_outlive_their_executors(
    session: Any, store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    wait_for_executors(session)
    marker = tmp_path / "killed"
    result = run_spread(
        session,
        lambda p: random_keys(
            p, 1200, markers=[None] * 3, nth=5, late_reader=True, late_marker=str(marker)
        ),
        *store.flags,
    )
    levels = {f"level {level}": 1200 for level in range(3)}
    assert counters(result) == {**levels, "late": 1200}
    assert marker.exists()
    assert not [text for text in caplog.messages if "are computed again" in text]
    assert store.count("PUT", r"\.parquet")
    assert store.objects() == []


def test_tasks_write_large_side_inputs(session: Any, store: ObjectStore) -> None:
    before = store.count("PUT", r"side-input-\S+\.arrow")
    result = run(session, lambda p: large_side_input(p, 40), *store.flags)
    assert counters(result) == {"looked up": 400, "read through": 2}
    assert store.count("PUT", r"side-input-\S+\.arrow") > before
    assert store.objects() == []


def test_packages_come_from_the_store(session: Any, store: ObjectStore, tmp_path: Path) -> None:
    file = sdist(tmp_path, NAME, "2.5", "VERSION = '2.5'\n")
    found = seen(session, f"--extra_package={file}", "--parallelism=12", *store.flags)
    assert {version for version, _ in found} == {"2.5"}
    assert store.count("GET", r"beam-packages-\S+\.tar")
    assert store.objects() == []


def test_where_beam_cannot_write_spark_alone_does(
    session: Any, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    before = store.count("PUT", r"side-input-\S+\.arrow")
    location, _ = store.flags
    result = run(
        session,
        lambda p: large_side_input(p, 40),
        f"{location}/elsewhere",
        "--s3_endpoint_url=http://127.0.0.1:9",
    )
    assert counters(result) == {"looked up": 400, "read through": 2}
    (warning,) = [text for text in caplog.messages if "--temp_location" in text]
    assert "clients of stores cannot use" in warning
    assert "http://127.0.0.1:9" in warning
    assert store.count("PUT", r"elsewhere/\S+\.parquet")
    assert store.count("PUT", r"side-input-\S+\.arrow") == before
    assert store.objects() == []


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("gs://box/tmp", "Spark cannot write and read gs://box/tmp/beam-probe"),
        ("s3://no-such-bucket/tmp", "Spark cannot write and read s3a://no-such-bucket/tmp"),
        ("ftp://host/tmp", "is none of s3://"),
    ],
)
def test_storage_that_cannot_be_used_is_named_before_anything_runs(
    session: Any, location: str, problem: str
) -> None:
    with pytest.raises(OptionsError, match=problem) as raised:
        run(session, counted, f"--temp_location={location}")
    assert raised.value.option == "temp_location"


@pytest.mark.connect
def test_spark_connect(store: ObjectStore, tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    with start_connect_server(tmp_path / "log", conf=store.spark_conf) as url:
        session = SparkSession.builder.remote(url).create()
        try:
            before = store.count("PUT", r"\.parquet")
            result = run(session, counted, *store.flags)
            assert counters(result) == {"counted": 5}
            assert store.count("PUT", r"\.parquet") > before
            assert store.objects() == []
        finally:
            session.stop()

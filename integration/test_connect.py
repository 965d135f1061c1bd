"""Spark Connect: no ``sparkContext`` in the driver, nor its own JVM."""

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner.core.errors import BundleFailedError, OptionsError
from beam_spark_runner.runner import SparkPortableRunner
from integration.cluster import PACKAGE_ROOT
from integration.partition_pipelines import SMALL_SORTS, read_partitions
from integration.pipelines import (
    Counted,
    Ticks,
    counters,
    large_side_input,
    random_keys,
    two_readers,
)
from integration.restrictions import TakeSteps, steps
from integration.streams import KEYS, windows_of_state
from tests.harvest import PROCESS

pytestmark = pytest.mark.connect


def build(pipeline: beam.Pipeline) -> None:
    words = pipeline | beam.Create(["a b", "b c", "c b"]) | beam.FlatMap(str.split)
    total = words | beam.combiners.Count.Globally()
    counts = (
        words
        | beam.ParDo(Counted("words"))
        | beam.combiners.Count.PerElement()
        | "Share" >> beam.Map(lambda pair, total: (*pair, total), beam.pvalue.AsSingleton(total))
    )
    assert_that(counts, equal_to([("a", 1, 6), ("b", 3, 6), ("c", 2, 6)]))


def run(session: Any, *arguments: str) -> Any:
    result = finished(session, build, *arguments)
    assert counters(result) == {"words": 6}
    return result


def finished(session: Any, build: Callable[[beam.Pipeline], None], *arguments: str) -> Any:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(session), options=PipelineOptions(list(arguments))
    )
    build(pipeline)
    result = pipeline.run()
    assert result.wait_until_finish(300_000) == PipelineState.DONE
    return result


@pytest.fixture
def remote_session(connect_server: str) -> Any:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    yield session
    session.stop()


def test_a_given_session_is_left_as_found(remote_session: Any) -> None:
    keys = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")
    remote_session.conf.set(keys[1], "7")
    before = [remote_session.conf.get(key) for key in keys]
    run(remote_session)
    assert [remote_session.conf.get(key) for key in keys] == before
    assert remote_session.range(3).count() == 3


def test_a_stream(remote_session: Any, tmp_path: Path) -> None:
    arguments = (f"--temp_location={tmp_path}", f"--checkpoint_dir={tmp_path / 'checkpoints'}")
    result = finished(remote_session, windows_of_state, *arguments)
    assert counters(result) == {"elements": 3 * KEYS}


def test_a_session_that_was_never_used_can_be_cloned(
    connect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.connect.session import SparkSession

    clones: list[Any] = []
    clone_session = SparkSession.cloneSession

    def noted(session: Any) -> Any:
        clones.append(clone_session(session))
        return clones[-1]

    monkeypatch.setattr(SparkSession, "cloneSession", noted)
    session = SparkSession.builder.remote(connect_server).create()
    try:
        run(session)
    finally:
        session.stop()
    assert len(clones) == 1


def test_a_local_server_of_the_users() -> None:
    """``remote("local[2]")``: pyspark starts the server in this process, and stops it."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "programs" / "local_remote.py")],
        env={
            **os.environ,
            "PYTHONPATH": str(PACKAGE_ROOT),
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-2:] == ["pyspark.sql.connect.session", "3 rows"]
    assert "SESSION_NOT_FOUND" not in done.stderr


def test_the_active_session_is_found(remote_session: Any) -> None:
    assert remote_session is not None
    run(None)
    assert remote_session.range(3).count() == 3


def test_an_address_among_the_options(connect_server: str) -> None:
    run(None, f"--spark_master_url={connect_server}")


def test_an_address_of_another_server_on_the_host(remote_session: Any, connect_server: str) -> None:
    with pytest.raises(
        OptionsError, match=re.escape(f"already has a SparkSession on {connect_server}")
    ):
        run(None, "--spark_master_url=sc://127.0.0.1:9")


def test_an_address_in_the_environment(
    connect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", connect_server)
    run(None)


def test_random_stages_and_segments(remote_session: Any) -> None:
    for two_segments in (False, True):
        pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session))
        two_readers(pipeline, 300, in_two_segments=two_segments)
        assert pipeline.run().wait_until_finish() == PipelineState.DONE
    pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session))
    random_keys(pipeline, 300, markers=[None] * 3, nth=0, late_reader=True)
    result = pipeline.run()
    result.wait_until_finish()
    assert counters(result)["late"] == 300


def test_rounds_of_a_splittable_dofn(remote_session: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = PipelineOptions(["--sdf_round_budget=0.5", "--parallelism=4"])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session), options=options)
    steps(pipeline, {"long": 150, "short": 10}, TakeSteps(defers_every=10))
    result = pipeline.run()
    assert result.wait_until_finish(300_000) == PipelineState.DONE
    assert counters(result) == {"steps": 160, "names": 2}
    assert any(text.startswith("round ") for text in caplog.messages)


@pytest.mark.parametrize("harness", [(), PROCESS], ids=["embedded", "process"])
def test_full_window_partitions(remote_session: Any, harness: tuple[str, ...]) -> None:
    flags = ("--parallelism=3", SMALL_SORTS, *harness)
    result = finished(remote_session, lambda p: read_partitions(p, 900, 3), *flags)
    assert counters(result) == {"checked": 1}


def test_files_in_shared_storage(remote_session: Any, tmp_path: Path) -> None:
    run(remote_session, f"--temp_location={tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_user_errors_keep_their_text(remote_session: Any) -> None:
    def divide(number: int) -> float:
        return 1 / number

    pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session))
    _ = pipeline | beam.Create([1, 0]) | "Divide" >> beam.Map(divide)
    with pytest.raises(BundleFailedError, match="ZeroDivisionError") as caught:
        pipeline.run().wait_until_finish()
    assert caught.value.step == "Divide"
    assert "in divide" in caught.value.traceback_text


@pytest.mark.parametrize("megabytes", [5, 40], ids=["at once", "in parts"])
def test_a_large_side_input(remote_session: Any, megabytes: int) -> None:
    """More than fits a closure, and no shared storage: a file of the session."""
    pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session))
    large_side_input(pipeline, megabytes)
    result = pipeline.run()
    assert result.wait_until_finish() == PipelineState.DONE
    assert counters(result) == {"looked up": 400, "read through": 2}


def test_cancel_ends_the_tasks(remote_session: Any, tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(remote_session))
    _ = pipeline | beam.Create(range(10_000)) | beam.ParDo(Ticks(str(tmp_path)))
    result = pipeline.run()
    deadline = time.monotonic() + 120
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    result.cancel()
    assert result.state == PipelineState.CANCELLED

    def ticks() -> int:
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    before, deadline = -1, time.monotonic() + 20  # Spark gives a worker 2 s before it kills it
    while (now := ticks()) != before and time.monotonic() < deadline:
        before = now
        time.sleep(2)
    assert now == before
    assert not [one for one in threading.enumerate() if one.name.startswith("beam-job")]

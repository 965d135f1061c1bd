"""Log lines, live metrics and finalization where workers are on other machines, or unreachable."""

import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.runner import SparkPortableRunner

COUNT = 60
LONGEST_S = 120.0


class Works(beam.DoFn):  # type: ignore[misc]
    """Logs, counts, takes its time, and leaves a file for each element whose bundle is accepted.

    The last element is not counted before somebody has seen that others were.
    """

    def __init__(self, folder: Path, fails_first: bool = False) -> None:
        self._folder = folder
        self._seen = folder.with_name("seen")
        self._fails_first = fails_first

    def process(
        self, element: int, finalizer: Any = beam.DoFn.BundleFinalizerParam
    ) -> Iterator[int]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber()
        deadline = time.monotonic() + LONGEST_S
        while element == COUNT - 1 and not self._seen.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        Metrics.counter("tests", "worked").inc()
        logging.getLogger("user").warning("works at %d", element)
        path = self._folder / f"{element}-{attempt}-{uuid.uuid4().hex}"
        finalizer.register(path.touch)
        time.sleep(0.1)
        if self._fails_first and element == 13 and attempt == 0:
            raise ValueError("the first time")
        yield element


def run(session: Any, folder: Path, *flags: str, fails_first: bool = False) -> tuple[Any, set[int]]:
    """Run it. Also returns the attempted values of the counter that were seen meanwhile."""
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(session), options=PipelineOptions(list(flags))
    )
    numbers = pipeline | beam.Create(range(COUNT), reshuffle=True)
    numbers | "work" >> beam.ParDo(Works(folder, fails_first))
    result = pipeline.run()
    seen: set[int] = set()
    while result.wait_until_finish(duration=200) == "RUNNING":
        seen.update(each.attempted for each in worked(result))
        if seen - {0, COUNT}:
            folder.with_name("seen").touch()
    (last,) = worked(result)
    assert last.committed == COUNT
    return result, seen


def worked(result: Any) -> list[Any]:
    found: list[Any] = result.metrics().query(MetricsFilter().with_name("worked"))["counters"]
    return found


def finalized(folder: Path) -> list[tuple[int, int]]:
    """Each element, with the attempt of its task."""
    names = [path.name.split("-") for path in folder.iterdir()]
    return sorted((int(element), int(attempt)) for element, attempt, _ in names)


def lines(result: Any) -> list[str]:
    return sorted(each.message_text.partition(" [")[0] for each in result.messages())


def check(result: Any, seen: set[int], folder: Path) -> None:
    assert lines(result) == sorted(f"works at {n}" for n in range(COUNT))
    assert seen - {0, COUNT}
    assert finalized(folder) == [(n, 0) for n in range(COUNT)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "finalized"
    found.mkdir()
    return found


@pytest.mark.cluster
def test_executors_reach_the_driver(cluster_session: Any, folder: Path) -> None:
    check(*run(cluster_session, folder), folder)


@pytest.mark.cluster
def test_executors_that_do_not_reach_it_write_files(
    cluster_session: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "beam_spark_runner.spark.session.handle.SessionHandle.driver_host",
        lambda _: ("127.0.0.1", "127.0.0.2"),  # there, nobody listens
    )
    check(*run(cluster_session, folder, f"--temp_location={tmp_path}"), folder)


@pytest.mark.cluster
def test_callbacks_of_a_failed_attempt_do_not_run(cluster_session: Any, folder: Path) -> None:
    result, _ = run(cluster_session, folder, "--parallelism=4", fails_first=True)
    found = finalized(folder)
    assert [element for element, _ in found] == list(range(COUNT))
    assert dict(found)[13] == 1
    assert len(lines(result)) > COUNT  # the failed attempt has said something, too


@pytest.fixture
def remote_session(connect_server: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    yield session
    session.stop()


@pytest.mark.connect
def test_connect_with_shared_storage(remote_session: Any, folder: Path, tmp_path: Path) -> None:
    check(*run(remote_session, folder, f"--temp_location={tmp_path}"), folder)


@pytest.mark.connect
def test_connect_without(
    remote_session: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.with_name("seen").touch()  # nobody will see anything
    result, seen = run(remote_session, folder)
    assert not seen - {COUNT}
    assert finalized(folder) == []
    (warning,) = lines(result)
    assert warning.startswith("work: callbacks of bundle finalization will not run")
    assert warning in caplog.text

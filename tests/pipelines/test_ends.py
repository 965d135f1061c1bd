"""How a pipeline ends that does not end by itself, and what is known of it meanwhile."""

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.files.job_storage import JobStorage
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.run.telemetry import TaskTelemetry
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.spark.session import spark_progress
from beam_spark_runner.spark.session.handle import SessionHandle
from tests.harvest import SPREAD


class Beats(beam.DoFn):  # type: ignore[misc]
    """Writes to a file for as long as it lives."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)

    def process(self, element: Any) -> Iterator[Any]:
        for _ in itertools.count():
            with open(self._file, "ab") as file:
                file.write(b".")
            time.sleep(0.02)
            yield from ()


def until(condition: Callable[[], Any], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def pipeline_on(spark: Any, *flags: str) -> beam.Pipeline:
    return beam.Pipeline(runner=SparkPortableRunner(spark=spark), options=PipelineOptions(flags))


@pytest.fixture
def endless(on_spark: Any, tmp_path: Path) -> Iterator[Any]:
    """The result of a pipeline that never ends, once its DoFn runs."""
    beats = tmp_path / "beats"
    pipeline = pipeline_on(on_spark, SPREAD)
    numbers = pipeline | beam.Create([1, 2]) | beam.Reshuffle()
    # The side input makes a separate segment: what it counted is known while the other runs.
    counted = numbers | "count" >> beam.Map(count)
    _ = numbers | beam.Map(lambda n, _: n, beam.pvalue.AsList(counted)) | beam.ParDo(Beats(beats))
    result = pipeline.run()
    until(beats.exists)
    result.beats = beats
    yield result
    result.cancel()


def count(number: int) -> int:
    Metrics.counter("tests", "counted").inc()
    return number


@pytest.mark.spark
def test_cancel(endless: Any, on_spark: Any) -> None:
    assert endless.state == PipelineState.RUNNING
    assert endless.wait_until_finish(duration=50) == PipelineState.RUNNING
    (counter,) = endless.metrics().query()["counters"]
    assert counter.committed == 2
    assert endless.cancel() == PipelineState.CANCELLED
    # Spark's status hears of the end a moment later.
    until(lambda: not on_spark.sparkContext.statusTracker().getActiveJobsIds())
    size = endless.beats.stat().st_size
    # Spark kills the worker of a cancelled task, but not at once.
    for _ in range(100):
        threading.Event().wait(0.3)
        before, size = size, endless.beats.stat().st_size
        if size == before:
            break
    assert size == before
    assert endless.cancel() == PipelineState.CANCELLED
    assert endless.wait_until_finish() == PipelineState.CANCELLED
    (counter,) = endless.metrics().query()["counters"]
    assert counter.committed == 2


@pytest.mark.spark
def test_progress_of_a_classic_session(endless: Any, on_spark: Any) -> None:
    seen_by = spark_progress.watch(on_spark, endless.job_id, is_connect=False)
    assert seen_by is not None
    until(lambda: (each := seen_by.counts()) and each.stages_done == 1)
    counts = seen_by.counts()
    assert counts is not None
    assert (counts.stages_done, counts.stages) == (1, 2)
    assert counts.tasks_done >= 1
    assert counts.tasks > counts.tasks_done
    assert counts.to_read is not None
    assert counts.to_read >= 2
    assert (seen_by.count_jobs() or 0) >= 2
    endless.cancel()
    until(lambda: seen_by.counts() is None)


def test_after_the_end(spark_session: Any, tmp_path: Path) -> None:
    pipeline = pipeline_on(spark_session)
    _ = pipeline | beam.Create([1]) | beam.Map(lambda _: (tmp_path / "ran").touch())
    result = pipeline.run()
    assert result.wait_until_finish() == PipelineState.DONE
    assert result.wait_until_finish(duration=1) == PipelineState.DONE
    assert result.cancel() == PipelineState.DONE
    assert (tmp_path / "ran").exists()


def test_a_failure_is_told_to_everyone_who_waits(spark_session: Any) -> None:
    def fail(_: Any) -> None:
        raise ValueError("the user's own words")

    pipeline = pipeline_on(spark_session)
    _ = pipeline | beam.Create([1]) | "fail" >> beam.Map(fail)
    result = pipeline.run()
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match=r"^fail: ValueError: the user's own words"
        ) as caught:
            result.wait_until_finish()
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    assert result.state == PipelineState.FAILED
    assert result.cancel() == PipelineState.FAILED
    with pytest.raises(RuntimeError, match="own words"):
        result.wait_until_finish(duration=1)


@pytest.mark.spark
def test_the_step_that_ended_its_worker_is_named_without_the_others(on_spark: Any) -> None:
    import ctypes

    def crash(_: Any) -> None:
        ctypes.string_at(0)

    pipeline = pipeline_on(on_spark)
    before = pipeline | beam.Create([1]) | "innocent" >> beam.Map(str) | beam.Reshuffle()
    _ = before | "crash" >> beam.Map(crash)
    with pytest.raises(RuntimeError, match="crash: the Python worker crashed") as caught:
        pipeline.run().wait_until_finish()
    text = str(caught.value)
    assert "Segmentation fault" in text
    assert re.search(r"test_ends.py\", line \d+ in crash$", text, re.MULTILINE)
    assert "innocent" not in text
    assert "\tat " not in text


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (JobRecord, "end"),
        (InProcessSession, "close"),
        (Job, "_end_progress"),
        (JobStorage, "remove"),
        (Job, "_remove_temporary_files"),
        (Job, "_report_error"),
        (Job, "_report_last_commit"),
        (TaskTelemetry, "close"),
        (Job, "_stop_events"),
    ],
)
def test_waiting_ends_whatever_fails_at_the_end(
    spark_session: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type,
    step: str,
) -> None:
    if kind is InProcessSession and spark_session is not None:
        kind = SessionHandle
    usual = getattr(kind, step)

    def fails(self: Any, *arguments: Any, **named: Any) -> None:
        usual(self, *arguments, **named)
        raise OSError("the disk is full")

    monkeypatch.setattr(kind, step, fails)
    pipeline = pipeline_on(spark_session)
    _ = pipeline | beam.Create([1])
    assert pipeline.run().wait_until_finish(120_000) == PipelineState.DONE
    assert "a step at the end of the job failed" in caplog.text
    assert "the disk is full" in caplog.text

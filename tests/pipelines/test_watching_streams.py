"""What a streaming pipeline shows of itself while it runs."""

import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration, Timestamp
from prometheus_client.parser import text_string_to_metric_families

from beam_spark_runner.core.errors import OptionsError, UnsupportedFeatureError
from beam_spark_runner.spark.pyspark_internals import scala_context
from tests.harness.processes import wait_for
from tests.harvest import RARE_HARNESSES
from tests.spark.endless import (
    FOR_EVER,
    HOUR_S,
    Endless,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
)

pytestmark = pytest.mark.usefixtures("nothing_goes_on")
ESTIMATOR = ManualWatermarkEstimator.default_provider()


class Read(beam.DoFn):  # type: ignore[misc]
    """Gives three numbers, has its watermark at 100 s, and waits for an hour."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        tracker: Any = beam.DoFn.RestrictionParam(Endless()),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(ESTIMATOR),  # noqa: B008
    ) -> Iterator[TimestampedValue]:
        for number in range(tracker.current_restriction().start, 3):
            if not tracker.try_claim(number):
                return  # the runner may end a bundle between two of the three
            yield TimestampedValue((element[0], number), number)
        estimator.set_watermark(Timestamp(100))
        tracker.defer_remainder(Duration(HOUR_S))


def windows(p: beam.Pipeline) -> None:
    """Two windows of which one is over at 100 s."""
    read = beam.ParDo(Read()).with_output_types(tuple[str, int])
    numbers = p | beam.Create([("a", FOR_EVER), ("b", FOR_EVER)]) | "Read" >> read
    windowed = numbers | beam.WindowInto(FixedWindows(60))
    _ = windowed | "Group" >> beam.GroupByKey() | "See" >> beam.Map(see)


def see(group: Any) -> None:
    Metrics.counter("here", "seen").inc()


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(result: Any) -> Samples:
    """Return what Prometheus would get, by name and labels but those of the job."""
    with urllib.request.urlopen(result.metrics_url, timeout=30) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("job_id") == result.job_id
            assert sample.labels.pop("job_name") == "orders"
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def of(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_watermarks_of_steps(spark_session: Any, flags: tuple[str, ...]) -> None:
    result = started(spark_session, windows, *flags)
    wait_for(lambda: result.watermarks() and result.watermarks()["Group"].input == Timestamp(100))
    found = result.watermarks()
    assert found["Read/Process"] == (MAX_TIMESTAMP, Timestamp(100))
    assert found["Group"] == (Timestamp(100), Timestamp(100))
    result.drain()
    result.wait_until_finish()
    assert set(result.watermarks().values()) == {(MAX_TIMESTAMP, MAX_TIMESTAMP)}


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_prometheus(spark_session: Any, flags: tuple[str, ...]) -> None:
    result = started(spark_session, windows, "--metrics_port=0", "--job_name=orders", *flags)
    wait_for(lambda: result.watermarks() and result.watermarks()["Group"].input == Timestamp(100))
    found = scraped(result)
    assert found["beam_spark_epochs_total", of()] >= 1
    output = "beam_spark_output_watermark_timestamp_seconds"
    assert found[output, of(step="Read/Process")] == found[output, of(step="Group")] == 100
    hold = of(step="Read/Process", held_by="restriction")
    assert found["beam_spark_watermark_hold_timestamp_seconds", hold] == 100
    assert found["beam_spark_pending_restrictions", of(step="Read/Process")] == 2
    assert found["beam_spark_backlog", of(step="Read/Process")] == 2 * (FOR_EVER - 3)
    elements = {
        dict(labels)["step"]: value
        for (name, labels), value in found.items()
        if name == "beam_spark_elements_total"
    }
    assert elements["Read/Process"] == 6
    (seen,) = (value for (name, _), value in found.items() if name == "beam_user_counter_total")
    assert seen == 2  # groups
    assert found["beam_user_counter_total", of(step="See", namespace="here", name="seen")] == 2
    stored = {
        dict(labels)["steps"]: value
        for (name, labels), value in found.items()
        if name == "beam_spark_state_bytes"
    }
    assert stored["Read/Process"] > 0
    parts = [value for (name, _), value in found.items() if name == "beam_spark_last_epoch_seconds"]
    assert len(parts) == 4
    assert sum(parts) > 0.01
    result.cancel()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(result.metrics_url, timeout=30)


def test_what_holds_the_watermark_of_a_step_whose_side_input_blocks(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        read = beam.ParDo(Read()).with_output_types(tuple[str, int])
        rates = p | "r" >> beam.Create([("r", FOR_EVER)]) | "Rates" >> read
        numbers = p | beam.Create([("a", FOR_EVER)]) | "Read" >> read
        _ = numbers | "Look" >> beam.Map(lambda pair, rates: pair, beam.pvalue.AsIter(rates))

    result = started(spark_session, build, "--metrics_port=0", "--job_name=orders")
    hold = "beam_spark_watermark_hold_timestamp_seconds", of(step="Look", held_by="side input")
    wait_for(lambda: hold in scraped(result))
    assert scraped(result)[hold] == 0
    blocked = result._job.watch.status.steps["Look"].blocked
    assert blocked.producers == ("Rates/Process",)


def test_the_metrics_of_a_batch_pipeline(spark_session: Any, tmp_path: Path) -> None:
    """They are there while it runs."""
    goes_on = tmp_path / "goes on"

    def wait(element: int) -> int:
        Metrics.counter("here", "begun").inc()
        while not goes_on.exists():
            time.sleep(0.02)
        return element

    flags = "--metrics_port=0", "--job_name=orders"
    result = started(
        spark_session, lambda p: p | beam.Create([1]) | "Wait" >> beam.Map(wait), *flags
    )
    begun = "beam_user_counter_total", of(step="Wait", namespace="here", name="begun")
    wait_for(lambda: scraped(result).get(begun) == 1)
    goes_on.touch()
    assert result.wait_until_finish() == "DONE"


@pytest.mark.spark
def test_sparks_ui_names_epochs_and_steps(on_spark: Any) -> None:
    result = started(on_spark, windows, "--job_name=orders")
    wait_for(result.watermarks)
    spark = scala_context(on_spark.sparkContext)
    jobs = spark.statusTracker().getJobIdsForTag(result.job_id)
    texts = [spark.statusStore().job(job).description().get() for job in jobs]
    (first,) = [text for text in texts if text.startswith("epoch 1 of orders: Create")]
    assert "Read" in first


def test_a_port_that_is_taken_fails_before_anything_runs(
    spark_session: Any, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with socket.create_server(("127.0.0.1", 0)) as other:
        flag = f"--metrics_port={other.getsockname()[1]}"
        with pytest.raises(OptionsError, match="cannot listen at"):
            started(spark_session, lambda p: p | beam.Create([1]) | beam.Map(ran.touch), flag)
    assert not ran.exists()


def test_a_batch_pipeline_has_no_watermarks(spark_session: Any) -> None:
    result = started(spark_session, lambda p: p | beam.Create([1]))
    with pytest.raises(UnsupportedFeatureError, match="watermarks of a pipeline that runs in bat"):
        result.watermarks()

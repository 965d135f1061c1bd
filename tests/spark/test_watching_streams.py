"""What a streaming pipeline shows of itself while it runs."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration, Timestamp

from beam_spark_runner.core.errors import UnsupportedFeatureError
from tests.harness.processes import wait_for
from tests.spark.endless import (
    FOR_EVER,
    HOUR_S,
    Endless,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
)
from tests.spark.harvest import RARE_HARNESSES

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_goes_on")]
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
        for number in range(3):
            if tracker.try_claim(number):
                yield TimestampedValue((element[0], number), number)
        estimator.set_watermark(Timestamp(100))
        tracker.defer_remainder(Duration(HOUR_S))


def windows(p: beam.Pipeline) -> None:
    """Two windows of which one is over at 100 s."""
    read = beam.ParDo(Read()).with_output_types(tuple[str, int])
    numbers = p | beam.Create([("a", FOR_EVER), ("b", FOR_EVER)]) | "Read" >> read
    _ = numbers | beam.WindowInto(FixedWindows(60)) | "Group" >> beam.GroupByKey() | beam.Map(print)


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


def test_a_batch_pipeline_has_no_watermarks(spark_session: Any) -> None:
    result = started(spark_session, lambda p: p | beam.Create([1]))
    with pytest.raises(UnsupportedFeatureError, match="watermarks of a pipeline that runs in bat"):
        result.watermarks()

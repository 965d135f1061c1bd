"""Watermark estimators of splittable DoFns."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.watermark_estimators import (
    ManualWatermarkEstimator,
    MonotonicWatermarkEstimator,
)
from apache_beam.runners import common, sdf_utils
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.harness.beam.estimators import (
    Estimator,
    NoOpProvider,
    use_fast_estimators,
)


class Plain(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any) -> None:
        return


def test_beams_invokers_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        common, "NoOpWatermarkEstimatorProvider", sdf_utils.NoOpWatermarkEstimatorProvider
    )
    monkeypatch.setattr(
        common, "ThreadsafeWatermarkEstimator", sdf_utils.ThreadsafeWatermarkEstimator
    )
    before = common.MethodWrapper(Plain(), "process").watermark_estimator_provider
    assert type(before) is sdf_utils.NoOpWatermarkEstimatorProvider
    use_fast_estimators()
    provider = common.MethodWrapper(Plain(), "process").watermark_estimator_provider
    assert isinstance(provider, NoOpProvider)
    assert common.ThreadsafeWatermarkEstimator is Estimator


def test_it_keeps_nothing_of_what_it_sees() -> None:
    provider = NoOpProvider()
    estimator = provider.create_watermark_estimator(provider.initial_estimator_state(None, None))
    estimator.observe_timestamp(Timestamp(5))
    again = provider.create_watermark_estimator(None)
    beams = sdf_utils.NoOpWatermarkEstimatorProvider().create_watermark_estimator(None)
    for each in (estimator, again, beams):
        assert each.current_watermark() is None
        assert each.get_estimator_state() is None


class Observing(ManualWatermarkEstimator):  # type: ignore[misc]
    def observe_timestamp(self, timestamp: Timestamp) -> None:
        self.set_watermark(timestamp)


@pytest.mark.parametrize("kind", [MonotonicWatermarkEstimator, Observing])
def test_who_looks_at_the_times_of_elements_sees_them(kind: Any) -> None:
    estimator = Estimator(kind(Timestamp(1)))
    estimator.observe_timestamp(Timestamp(5))
    assert estimator.current_watermark() == Timestamp(5)


def test_a_manual_one_is_set_by_hand_alone() -> None:
    estimator = Estimator(ManualWatermarkEstimator(Timestamp(1)))
    estimator.observe_timestamp(Timestamp(5))
    assert estimator.current_watermark() == Timestamp(1)
    estimator.set_watermark(Timestamp(3))
    assert estimator.get_estimator_state() == Timestamp(3)

"""Splittable DoFns without a watermark estimator share one that does nothing."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners import common, sdf_utils
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.harness.beam.estimators import NoOpProvider, use_one_estimator


class Plain(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any) -> None:
        return


def test_beams_invokers_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        common, "NoOpWatermarkEstimatorProvider", sdf_utils.NoOpWatermarkEstimatorProvider
    )
    before = common.MethodWrapper(Plain(), "process").watermark_estimator_provider
    assert type(before) is sdf_utils.NoOpWatermarkEstimatorProvider
    use_one_estimator()
    provider = common.MethodWrapper(Plain(), "process").watermark_estimator_provider
    assert isinstance(provider, NoOpProvider)


def test_it_keeps_nothing_of_what_it_sees() -> None:
    provider = NoOpProvider()
    estimator = provider.create_watermark_estimator(provider.initial_estimator_state(None, None))
    estimator.observe_timestamp(Timestamp(5))
    again = provider.create_watermark_estimator(None)
    beams = sdf_utils.NoOpWatermarkEstimatorProvider().create_watermark_estimator(None)
    for each in (estimator, again, beams):
        assert each.current_watermark() is None
        assert each.get_estimator_state() is None

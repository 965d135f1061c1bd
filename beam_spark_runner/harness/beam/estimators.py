"""Watermark estimators of splittable DoFns, where Beam's own take time for nothing."""

from typing import Any

from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners import common, sdf_utils
from apache_beam.utils.timestamp import Timestamp


class NoOpProvider(sdf_utils.NoOpWatermarkEstimatorProvider):  # type: ignore[misc]
    """Beam's own, whose estimator knows and does nothing: one is enough.

    Beam's makes a class for each restriction that is begun, or begun again, which takes a
    quarter of the time of one that defers at once.
    """

    _estimator: Any = None

    def create_watermark_estimator(self, estimator_state: Any) -> Any:
        """See Beam's ``WatermarkEstimatorProvider``."""
        if self._estimator is None:
            self._estimator = super().create_watermark_estimator(estimator_state)
        return self._estimator


class Estimator(sdf_utils.ThreadsafeWatermarkEstimator):  # type: ignore[misc]
    """Beam's own. It takes no lock for the time of an element that nobody looks at.

    Args:
        estimator: of the user, or Beam's.
    """

    def __init__(self, estimator: Any) -> None:
        super().__init__(estimator)
        if type(estimator).observe_timestamp is ManualWatermarkEstimator.observe_timestamp:
            self.observe_timestamp = _nothing


def _nothing(timestamp: Timestamp) -> None:
    """As ``ManualWatermarkEstimator.observe_timestamp``."""


def use_fast_estimators() -> None:
    """Let Beam's invokers use ``NoOpProvider`` and ``Estimator``, those made from now on."""
    common.NoOpWatermarkEstimatorProvider = NoOpProvider
    common.ThreadsafeWatermarkEstimator = Estimator

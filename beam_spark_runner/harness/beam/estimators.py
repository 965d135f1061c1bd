"""Watermark estimators of splittable DoFns that want none."""

from typing import Any

from apache_beam.runners import common, sdf_utils


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


def use_one_estimator() -> None:
    """Let Beam's invokers use ``NoOpProvider``; for those that are made from now on."""
    common.NoOpWatermarkEstimatorProvider = NoOpProvider

"""Output of segments that another driver cannot have."""

from typing import Any

import pytest

from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.scheduling.segment_output import OutputPart, SegmentOutput
from beam_spark_runner.spark.driver.frame_rows import reopened

STORAGE: Any = None
"""It is not asked."""


def test_output_on_executors_cannot_be_reopened() -> None:
    on_executors = OutputPart(run=1, attempts=Attempts.of([1]), path=None)
    in_storage = OutputPart(run=2, attempts=Attempts.of([2]), path="/somewhere")
    for parts in [(on_executors,), (on_executors, in_storage), ()]:
        with pytest.raises(ValueError, match="not in shared storage"):
            reopened(SegmentOutput(parts=parts), STORAGE)

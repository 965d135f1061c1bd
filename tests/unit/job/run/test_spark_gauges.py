"""What is shown in Spark's metrics system of the status of an epoch."""

import math

from beam_spark_runner.job.run.spark_gauges import _values
from beam_spark_runner.observing.epoch_status import EpochStatus, StepStatus


def test_a_backlog_that_is_unknown_is_no_number() -> None:
    """A gauge would continue showing the last value that it was given."""
    steps = {
        "Known": StepStatus(input_us=5, output_us=4_000, restrictions=2, backlog=7.0),
        "Unknown": StepStatus(input_us=5, output_us=4_000, restrictions=200),
        "No source": StepStatus(input_us=5, output_us=4_000, left=3),
    }
    values = _values("job", EpochStatus(epoch=3, steps=steps))
    assert values["beam", "job", "backlog", "Known"] == 7.0
    assert math.isnan(values["beam", "job", "backlog", "Unknown"])
    assert ("beam", "job", "backlog", "No source") not in values
    assert values["beam", "job", "pending_restrictions", "Unknown"] == 200
    assert values["beam", "job", "pending_records", "No source"] == 3
    assert ("beam", "job", "pending_records", "Known") not in values

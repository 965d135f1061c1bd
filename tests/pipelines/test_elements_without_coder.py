"""Elements that no coder can encode, on their way between two fused steps."""

import threading
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest


class Locked:
    def __init__(self, number: int) -> None:
        self.lock, self.number = threading.Lock(), number


def test_they_are_passed_on(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        locked = p | beam.Create(range(3)) | "lock" >> beam.Map(Locked)
        again = locked | "one by one" >> beam.FlatMap(lambda each: iter([each, each]))
        return {"numbers": again | "unlock" >> beam.Map(lambda each: each.number)}

    assert harvest(spark_session, build)["numbers"] == [0, 0, 1, 1, 2, 2]


def test_they_do_not_leave_their_stage(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        locked = p | beam.Create(range(3)) | "lock" >> beam.Map(Locked)
        return {"numbers": locked | beam.Reshuffle() | beam.Map(lambda each: each.number)}

    with pytest.raises(BundleFailedError, match="lock"):
        harvest(spark_session, build)

"""Tables of Spark on runners that have no Spark."""

from collections.abc import Callable

import apache_beam as beam
import pytest

from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark


def read_elsewhere(p: beam.Pipeline) -> None:
    p | ReadFromSpark(path="/x", schema="id INT")


def write_elsewhere(p: beam.Pipeline) -> None:
    p | beam.Create([{"id": 1}]) | WriteToSpark(path="/x", schema="id INT")


@pytest.mark.parametrize("build", [read_elsewhere, write_elsewhere])
def test_another_runner_says_what_to_use(build: Callable[[beam.Pipeline], None]) -> None:
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    pipeline = beam.Pipeline(runner=FnApiRunner())
    build(pipeline)
    with pytest.raises(Exception, match="needs SparkPortableRunner; on another runner use"):
        pipeline.run().wait_until_finish()

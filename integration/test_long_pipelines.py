"""A chain of 2,000 transforms with 300 GroupByKeys: cut into Spark jobs, on both ends of Spark."""

import time
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner.job.prepare.compile import compile_graph
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.runner import SparkPortableRunner

GROUPINGS = 300
STEPS = 2_000
COMPILE_LIMIT_S = 5.0


def build(pipeline: beam.Pipeline) -> None:
    here = pipeline | beam.Create(range(20))
    for number in range(GROUPINGS):
        here = (
            here
            | f"key{number}" >> beam.Map(lambda index: (index % 7, index))
            | f"group{number}" >> beam.GroupByKey()
            | f"ungroup{number}" >> beam.FlatMap(lambda pair: pair[1])
        )
        for step in range((STEPS - 3 * GROUPINGS) // GROUPINGS):
            here = here | f"step{number}-{step}" >> beam.Map(lambda index: index)
    assert_that(here, equal_to(list(range(20))))


def test_compiles_fast() -> None:
    pipeline = beam.Pipeline()
    build(pipeline)
    proto = pipeline.to_runner_api()
    start = time.process_time()
    plan = compile_graph(from_proto(proto))
    took_s = time.process_time() - start
    levels = sum(len(segment.levels) for segment in plan.segments)
    print(f"{len(plan.graph.transforms)} transforms, {levels} levels: {took_s:.2f} s of CPU")
    assert took_s < COMPILE_LIMIT_S


def run(session: Any, *flags: str) -> None:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(session), options=PipelineOptions(list(flags))
    )
    build(pipeline)
    start = time.monotonic()
    assert pipeline.run().wait_until_finish() == PipelineState.DONE
    took_s = time.monotonic() - start
    print(f"{took_s:.1f} s, {took_s / GROUPINGS * 1000:.0f} ms per level")


@pytest.mark.cluster
def test_runs_on_classic_spark() -> None:
    run(None, "--spark_master_url=local[*]")


@pytest.mark.connect
def test_runs_on_connect(connect_server: str) -> None:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    try:
        run(session)
    finally:
        session.stop()

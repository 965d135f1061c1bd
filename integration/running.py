"""Running a pipeline in a session until it is done."""

from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.runner import SparkPortableRunner
from tests.harvest import SPREAD


def run(session: Any, build: Any, *arguments: str) -> Any:
    """Run the pipeline that ``build`` builds in a session; return its result, which is DONE."""
    return run_on(SparkPortableRunner(session), build, *arguments)


def run_spread(session: Any, build: Any, *arguments: str) -> Any:
    """The same, with no segment begun by a single task: Spark does every exchange."""
    return run(session, build, SPREAD, *arguments)


def run_on(runner: SparkPortableRunner, build: Any, *arguments: str) -> Any:
    """The same on a runner that is there."""
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(arguments)))
    build(pipeline)
    result = pipeline.run()
    assert result.wait_until_finish(900_000) == PipelineState.DONE
    return result

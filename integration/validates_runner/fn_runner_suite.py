"""Tests of ``FnApiRunner``, on the runner under test.

The classes have separate names: by those of Beam's, Beam skips what fails on its own runner.
"""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner, fn_runner_test


class AnyRunnerTest(fn_runner_test.FnApiRunnerTest):  # type: ignore[misc]
    """Beam's class makes pipelines here and nowhere else."""

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        """Return a pipeline of the default runner. Ours drains by an option."""
        pipeline = beam.Pipeline(options=PipelineOptions(["--drain"] if is_drain else []))
        if isinstance(pipeline.runner, fn_runner.FnApiRunner):
            pipeline.runner._is_drain = is_drain
        return pipeline


class LargeGroupsTest(fn_runner_test.FnApiBasedStateBackedCoderTest):  # type: ignore[misc]
    """Groups whose values are not all in memory."""

    def create_pipeline(self) -> beam.Pipeline:
        """Return a pipeline of the default runner."""
        return beam.Pipeline()

"""``FnApiRunnerTest``, on the runner under test."""

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import fn_runner, fn_runner_test


class FnApiRunnerTest(fn_runner_test.FnApiRunnerTest):  # type: ignore[misc]
    """Beam's class makes pipelines here and nowhere else."""

    def create_pipeline(self, is_drain: bool = False) -> beam.Pipeline:
        """Return a pipeline of the default runner; only Beam's own can be told to drain."""
        pipeline = beam.Pipeline()
        if isinstance(pipeline.runner, fn_runner.FnApiRunner):
            pipeline.runner._is_drain = is_drain
        return pipeline

"""A runner that stops streaming pipelines after some epochs, and continues them with others."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.driving import epoch_loop


class StoppedError(Exception):
    """A pipeline has committed as many epochs as it was to."""


@contextmanager
def stopping_after(epochs: int) -> Iterator[None]:
    """Stop a pipeline once it has committed so many epochs in this run."""
    step, left = epoch_loop.EpochLoop.step, epochs

    def counted(run: Any) -> bool:
        nonlocal left
        if not left:
            raise StoppedError
        left -= 1
        return step(run)

    with mock.patch.object(epoch_loop.EpochLoop, "step", counted):
        yield


class Rescaled(SparkPortableRunner):
    """Runs a pipeline with one number of partitions after the other.

    Args:
        runner: that runs it.
        epochs: after which each run but the last one stops.
        parallelisms: of the runs.
    """

    def __init__(
        self, runner: SparkPortableRunner, epochs: int, parallelisms: Sequence[int]
    ) -> None:
        super().__init__()
        self._runner, self._epochs, self._parallelisms = runner, epochs, parallelisms

    def run_portable_pipeline(self, pipeline: Any, options: PipelineOptions) -> Any:
        for parallelism in self._parallelisms[:-1]:
            with stopping_after(self._epochs), pytest.raises(StoppedError):
                self._run(pipeline, options, parallelism).wait_until_finish()
        return self._run(pipeline, options, self._parallelisms[-1])

    def _run(self, pipeline: Any, options: PipelineOptions, parallelism: int) -> Any:
        options.view_as(FlinkRunnerOptions).parallelism = parallelism
        return self._runner.run_portable_pipeline(copy.deepcopy(pipeline), options)

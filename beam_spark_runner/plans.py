"""Shows the plan of a pipeline without running it."""

from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineResult, PipelineState
from typing_extensions import override

from beam_spark_runner.job.prepare.prepare import prepare
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.explain import explain
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.plan.picture import picture
from beam_spark_runner.runner import SparkPortableRunner


def show_plan(pipeline: beam.Pipeline) -> "ShownPlan":
    """Return the plan by which SparkPortableRunner would run a pipeline; nothing runs, nor Spark.

    In a notebook it is shown as a diagram; elsewhere ``print`` it.

    Args:
        pipeline: A pipeline with any runner. Its options are those of the plan.

    Raises:
        OptionsError, PipelineError: The options or the pipeline are invalid.
    """
    shown = _PlanOnly().run_pipeline(pipeline, pipeline.options)
    assert isinstance(shown, ShownPlan)
    return shown


class ShownPlan(PipelineResult):  # type: ignore[misc]
    """A plan to look at: as text, and in notebooks as a diagram.

    Attributes:
        plan: The plan itself.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(PipelineState.STOPPED)
        self.plan = plan

    @override
    def __str__(self) -> str:
        return explain(self.plan)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return picture(self.plan)


class _PlanOnly(SparkPortableRunner):
    """Compiles pipelines, and runs none."""

    @override
    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> Any:
        config = RunnerConfig.from_options(options)
        # LOOPBACK steps have no worker pool, since no code of theirs runs.
        return ShownPlan(prepare(pipeline, options, config, lambda _: "", job_id="plan").plan)

"""Checks that a bounded pipeline can be continued after its driver has died."""

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.table_steps import WRITE_TABLE
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Plan

_OPTION = "batch_job_recovery"


def check_can_be_recovered(plan: Plan, config: RunnerConfig) -> None:
    """Check that ``--batch_job_recovery`` supports all parts of a pipeline.

    Args:
        plan: The plan of the pipeline, which runs in batch.
        config: Its options.

    Raises:
        OptionsError: It does not.
    """
    if config.checkpoint_dir is None:
        raise OptionsError(
            _OPTION, "needs a --checkpoint_dir, where what has run is stored for the next start"
        )
    for step in plan.graph.transforms.values():
        if step.urn == WRITE_TABLE:
            raise OptionsError(
                _OPTION,
                f"{step.name} writes a Spark table, which the option does not support yet: a later "
                "start might write it twice. Write files, or leave the option out",
            )

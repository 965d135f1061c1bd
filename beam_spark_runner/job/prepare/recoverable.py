"""Checks that a bounded pipeline can be continued after its driver has died."""

from collections.abc import Callable, Mapping

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.table_steps import WRITE_TABLE
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Plan

_OPTION = "batch_job_recovery"
_OF_PROGRAMS: Mapping[str, Callable[[RunnerConfig], bool]] = {
    "checkpoint_dir": lambda config: config.checkpoint_dir is not None,
    "restart": lambda config: config.restart != "auto",
}
"""Options that only programs with ``--batch_job_recovery`` use, and whether they are set."""


def check_can_be_recovered(plan: Plan, config: RunnerConfig) -> None:
    """Check that ``--batch_job_recovery`` supports all parts of a pipeline.

    Args:
        plan: The plan of the pipeline, which runs in batch.
        config: Its options.

    Raises:
        OptionsError: It does not.
    """
    if config.job_folder is None:
        raise OptionsError(
            _OPTION, "needs a --checkpoint_dir, where what has run is stored for the next start"
        )
    if config.server_folder is not None:
        for option, is_set in _OF_PROGRAMS.items():
            if is_set(config):
                raise OptionsError(
                    option,
                    "a job server stores what batch pipelines have run in its own --jobs_dir, and "
                    "continues them; leave the option out",
                )
    for step in plan.graph.transforms.values():
        if step.urn == WRITE_TABLE:
            raise OptionsError(
                _OPTION,
                f"{step.name} writes a Spark table, which the option does not support yet: a later "
                "start might write it twice. Write files, or leave the option out",
            )

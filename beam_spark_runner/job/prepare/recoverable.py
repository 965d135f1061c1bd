"""Checks that a bounded pipeline can be continued after its driver has died."""

from collections.abc import Callable, Mapping

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig

_OPTION = "batch_job_recovery"
_OF_PROGRAMS: Mapping[str, Callable[[RunnerConfig], bool]] = {
    "checkpoint_dir": lambda config: config.checkpoint_dir is not None,
    "restart": lambda config: config.restart != "auto",
}
"""Options that only programs with ``--batch_job_recovery`` use, and whether they are set."""


def check_can_be_recovered(config: RunnerConfig) -> None:
    """Check that the options of a pipeline in batch let it be continued.

    Raises:
        OptionsError: They do not.
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

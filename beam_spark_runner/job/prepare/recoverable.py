"""Checks that a bounded pipeline can be continued after its driver has died."""

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig

_OPTION = "batch_job_recovery"


def check_can_be_recovered(config: RunnerConfig) -> None:
    """Check that the options of a pipeline in batch let it be continued.

    Raises:
        OptionsError: They do not.
    """
    if config.checkpoint_dir is None:
        raise OptionsError(
            _OPTION, "needs a --checkpoint_dir, where what has run is stored for the next start"
        )

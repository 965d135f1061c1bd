"""The warning that reports the last commit of a streaming pipeline that was cancelled or failed."""

from collections.abc import Callable

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.job.files.shard_places import committed_epoch
from beam_spark_runner.job.prepare.continued_streams import has_servers_checkpoint
from beam_spark_runner.options.config import RunnerConfig


def warn_of_last_commit(
    config: RunnerConfig, places: ShardLocations | None, warn: Callable[[str], None]
) -> None:
    """Warn of the epoch after which the same command continues, if there is a --checkpoint_dir.

    Args:
        config: The options of the job.
        places: Where a streaming job stores its state. None: it has not begun, or runs in batch.
        warn: Is called with the text.
    """
    if places is None or config.checkpoint_dir is None or has_servers_checkpoint(config):
        return
    folder = f"--checkpoint_dir={config.checkpoint_dir}"
    try:
        epoch = committed_epoch(places)
    except RunnerError as error:
        warn(f"the last committed epoch in {folder} cannot be read: {error}")
        return
    if epoch is None:
        warn(f"no epoch was committed in {folder}: the same command starts from the beginning")
    elif config.restart == "fresh":
        warn(
            f"without --restart=fresh, the same command continues after epoch {epoch:,} of {folder}"
        )
    else:
        warn(f"the same command continues after epoch {epoch:,}, the last one in {folder}")

"""Decides where a streaming job stores its state, and commits its epochs."""

from pathlib import Path

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.job.checkpoint_folder import CheckpointFolder
from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.spark.program import ShardPlaces

_LINEAGE = "main"


def shard_places(config: RunnerConfig, folder: Path | None, *, is_local: bool) -> ShardPlaces:
    """Say where a streaming job has its state.

    Args:
        config: of the job.
        folder: of the job, which goes with it; None: it has none.
        is_local: tasks run on this machine.

    Raises:
        OptionsError: it has no place, or there are fewer groups of keys than partitions.
    """
    given = config.checkpoint_dir
    if given is None and folder is None:
        raise OptionsError(
            "checkpoint_dir",
            "a streaming pipeline needs a folder that is mounted on this machine and all "
            "executors; name it, or --temp_location (object stores cannot have checkpoints yet)",
        )
    groups = config.max_parallelism or KEY_GROUPS
    if (config.parallelism or 0) > groups:
        raise OptionsError(
            "parallelism",
            f"{config.parallelism} is more than --max_parallelism, which is {groups} for a "
            "streaming pipeline unless it is set",
        )
    # Without a folder of the user's, checkpoints are gone with the run.
    deltas = Path(given).absolute() if given is not None else Path(str(folder), "checkpoints")
    return ShardPlaces(
        lineage=_LINEAGE,
        deltas=str(deltas),
        local=str(Path(str(folder), "shards")) if is_local else None,
        key_groups=groups,
        tasks_sync=not is_local,
    )


def checkpoints_in(places: ShardPlaces, config: RunnerConfig) -> Checkpoints:
    """Say where a streaming job commits its epochs: where its state is."""
    return Checkpoints(
        storage=CheckpointFolder(Path(places.deltas)),
        lineage=places.lineage,
        restart=config.restart,
        key_groups=places.key_groups,
        after_tasks_finish=config.checkpoints_after_tasks_finish,
        tasks_sync=places.tasks_sync,
    )

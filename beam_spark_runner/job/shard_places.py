"""Decides where a streaming job stores its state, commits its epochs, and makes savepoints."""

import secrets
from pathlib import Path

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.job.checkpoint_folder import CheckpointFolder
from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.recovery.savepoint import Savepoint, make_savepoint
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
    """Say where a streaming job commits its epochs, which is where its state is.

    Raises:
        OptionsError: there is no folder with the savepoint that it begins with.
    """
    savepoint = config.savepoint_path
    if savepoint and not Path(savepoint).is_dir():
        raise OptionsError("savepoint_path", f"there is no folder {savepoint}")
    storage = CheckpointFolder(Path(places.deltas))
    return Checkpoints(
        storage=storage,
        lineage=places.lineage,
        restart=config.restart,
        key_groups=places.key_groups,
        after_tasks_finish=config.checkpoints_after_tasks_finish,
        tasks_sync=places.tasks_sync,
        savepoint=Savepoint(CheckpointFolder(Path(savepoint)), storage) if savepoint else None,
    )


def save(checkpoints: Path, path: Path) -> int:
    """Make a savepoint, while the job runs or afterwards.

    Args:
        checkpoints: folder in which the job commits its epochs.
        path: folder of the savepoint; made if it is missing.

    Returns:
        The number of the epoch that it has.

    Raises:
        NothingCommittedError: no epoch has been committed.
        SavepointExistsError: the folder has another savepoint, or a checkpoint.
        CorruptManifestError: the checkpoint is damaged.
        CheckpointStorageError: one of the folders cannot be used.
    """
    source, target = CheckpointFolder(checkpoints), CheckpointFolder(path)
    return make_savepoint(Savepoint(source, target), _LINEAGE, secrets.token_hex(8))

"""Decides where a streaming job stores its state, commits its epochs, and makes savepoints."""

import secrets
from pathlib import Path

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.core.storage_urls import is_url
from beam_spark_runner.job.checkpoint_folder import CheckpointFolder
from beam_spark_runner.job.checkpoint_objects import CheckpointObjects
from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.recovery.savepoint import (
    CopyingStorage,
    NothingCommittedError,
    Savepoint,
    make_savepoint,
)
from beam_spark_runner.spark.program import ShardPlaces
from beam_spark_runner.state.folder_at import folder_at, settings_of_tasks

_LINEAGE = "main"


def shard_places(config: RunnerConfig, folder: Path | None, *, is_local: bool) -> ShardPlaces:
    """Say where a streaming job has its state.

    Args:
        config: of the job.
        folder: of the job, which goes with it; None: it has none.
        is_local: tasks run on this machine.

    Raises:
        OptionsError: it has no place, or there are fewer groups of keys than partitions; or HDFS
            is to be used by a user without a name.
    """
    given = config.checkpoint_dir
    if given is None and folder is None:
        raise OptionsError(
            "checkpoint_dir",
            "a streaming pipeline needs a folder that this machine and all executors share: name "
            "one that is mounted everywhere, or one of an object store or HDFS (s3://, gs://, "
            "abfss://, hdfs://)",
        )
    groups = config.max_parallelism or KEY_GROUPS
    if (config.parallelism or 0) > groups:
        raise OptionsError(
            "parallelism",
            f"{config.parallelism} is more than --max_parallelism, which is {groups} for a "
            "streaming pipeline unless it is set",
        )
    # Without a folder of the user's, checkpoints are gone with the run.
    if given is None:
        deltas = str(Path(str(folder), "checkpoints"))
    else:
        deltas = given if is_url(given) else str(Path(given).absolute())
    return ShardPlaces(
        lineage=_LINEAGE,
        deltas=deltas,
        local=str(Path(str(folder), "shards")) if is_local else None,
        key_groups=groups,
        tasks_sync=not is_local or is_url(deltas),
        store=settings_of_tasks(deltas, config.store_settings),
    )


def checkpoints_in(places: ShardPlaces, config: RunnerConfig) -> Checkpoints:
    """Say where a streaming job commits its epochs, which is where its state is.

    Raises:
        CheckpointStorageError: the folder cannot be used.
        OptionsError: the storage lacks what is needed.
    """
    storage = storage_at(places.deltas, "checkpoint_dir", places.store)

    def savepoint() -> Savepoint | None:
        if config.savepoint_path is None:
            return None
        source = existing_storage(config.savepoint_path, "savepoint_path", places.store)
        return Savepoint(source, storage)

    return Checkpoints(
        storage=storage,
        lineage=places.lineage,
        restart=config.restart,
        key_groups=places.key_groups,
        after_tasks_finish=config.checkpoints_after_tasks_finish,
        tasks_sync=places.tasks_sync,
        renamed=dict(config.renamed_steps),
        savepoint=savepoint,
    )


def storage_at(
    folder: str, option: str, settings: tuple[tuple[str, str], ...] = ()
) -> CopyingStorage:
    """Open a folder for checkpoints or a savepoint. It is made if it is missing.

    Args:
        folder: its path, or its URL as ``options.values.checkpoint_folder`` returns it.
        option: that has named it, for errors.
        settings: of the store's client, see ``UrlFolder``.

    Raises:
        CheckpointStorageError: it cannot be used.
        OptionsError: the storage lacks what is needed, or an option of its client is wrong.
    """
    if not is_url(folder):
        return CheckpointFolder(Path(folder))
    objects = CheckpointObjects(folder_at(folder, settings))
    objects.check(option)
    return objects


def existing_storage(
    folder: str, option: str, settings: tuple[tuple[str, str], ...] = ()
) -> CopyingStorage:
    """Open a folder that must be there, to read it; see ``storage_at``.

    Raises:
        OptionsError: it is missing. Object stores have no folders that could be.
        CheckpointStorageError: HDFS cannot be asked.
    """
    if is_url(folder):
        objects = CheckpointObjects(folder_at(folder, settings))
        if objects.exists():
            return objects
    elif Path(folder).is_dir():
        return CheckpointFolder(Path(folder))
    raise OptionsError(option, f"there is no folder {folder}")


def save(source: CopyingStorage, target: CopyingStorage) -> int:
    """Make a savepoint, while the job runs or afterwards.

    Args:
        source: in which the job commits its epochs.
        target: of the savepoint.

    Returns:
        The number of the epoch that it has.

    Raises:
        NothingCommittedError: no epoch has been committed.
        SavepointExistsError: the folder has another savepoint, or a checkpoint.
        CorruptManifestError: the checkpoint is damaged.
        CheckpointStorageError: one of the folders cannot be used.
    """
    return make_savepoint(Savepoint(source, target), _LINEAGE, secrets.token_hex(8))


def committed_epoch(places: ShardPlaces) -> int | None:
    """Return the number of the last epoch that was committed; None: there is none.

    Args:
        places: where a job has its state.

    Raises:
        CorruptManifestError: what was committed last is damaged.
        RunnerError: the folder cannot be read.
    """
    found = newest(existing_storage(places.deltas, "checkpoint_dir", places.store), places.lineage)
    return found[-1].epoch if found else None


def save_job(places: ShardPlaces | None, path: str) -> int:
    """Make a savepoint of a job that runs here; see ``save``.

    Args:
        places: where it has its state; None: it has not begun.
        path: folder of the savepoint, see ``storage_at``.
    """
    if places is None:
        raise NothingCommittedError
    source = existing_storage(places.deltas, "checkpoint_dir", places.store)
    return save(source, storage_at(path, "path", places.store))

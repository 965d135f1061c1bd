"""Decides where a streaming job stores its state, commits its epochs, and makes savepoints."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from beam_spark_runner.core.errors import SAVEPOINT_ARGUMENT, OptionsError
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage, Subfolder
from beam_spark_runner.job.prepare.continued_streams import has_servers_checkpoint
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.options.config import RunnerConfig
from beam_spark_runner.options.partition_options import key_groups_of_stream
from beam_spark_runner.recovery.checkpoint_subfolder import chosen_subfolder, subfolder_in
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.copies import Namespaces
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.recovery.job_submissions import has_submissions
from beam_spark_runner.recovery.manifest import epochs_of
from beam_spark_runner.recovery.savepoint_copy import (
    CopyingStorage,
    NothingCommittedError,
    Savepoint,
    make_savepoint,
)
from beam_spark_runner.recovery.verification import VerifiedEpoch, verified
from beam_spark_runner.state.checked_files import check_file
from beam_spark_runner.storage.folder import Settings
from beam_spark_runner.storage.folder_at import folder_at, settings_of_tasks
from beam_spark_runner.storage.urls import is_url

_LINEAGE = "main"


def shard_places(config: RunnerConfig, folder: Path | None, *, is_local: bool) -> ShardLocations:
    """Return where a streaming job stores its state.

    Args:
        config: The options of the job.
        folder: The temporary folder of the job. None: it has none.
        is_local: Whether tasks run on this machine.

    Raises:
        OptionsError: There is no folder for the state, there are fewer key groups than partitions,
            or HDFS is used without the name of a user.
    """
    checkpoint_dir = config.checkpoint_dir
    if checkpoint_dir is None and folder is None:
        raise OptionsError(
            "checkpoint_dir",
            "a streaming pipeline needs a folder that this machine and all executors share: name "
            "one that is mounted everywhere, or one of an object store or HDFS (s3://, gs://, "
            "abfss://, hdfs://)",
        )
    groups = key_groups_of_stream(config.max_parallelism)
    if (config.parallelism or 0) > groups:
        raise OptionsError(
            "parallelism",
            f"{config.parallelism} is more than --max_parallelism, which is {groups} for a "
            "streaming pipeline unless it is set",
        )
    # Without --checkpoint_dir, checkpoints are deleted with the job's folder.
    deltas = shard_root(config) or str(Path(str(folder), "checkpoints"))
    return ShardLocations(
        lineage=_LINEAGE,
        deltas=deltas,
        local=str(Path(str(folder), "shards")) if is_local else None,
        key_groups=groups,
        tasks_sync=not is_local or is_url(deltas),
        store=settings_of_tasks(deltas, config.store_settings),
        state_store=config.state_store,
        pack_cache_bytes=config.state_store_cache_bytes,
    )


def shard_root(config: RunnerConfig) -> str | None:
    """Return the path or URL of the ``--checkpoint_dir`` of a streaming job; None: it has none."""
    place = config.checkpoint_dir
    return place if place is None or is_url(place) else str(Path(place).absolute())


def _always() -> bool:
    return True


def in_subfolder(places: ShardLocations, config: RunnerConfig) -> ShardLocations:
    """Return where a streaming job stores its state: in the subfolder of its checkpoint.

    It is chosen if the checkpoint is new; see ``checkpoint_subfolder``.

    Args:
        places: See ``shard_places``.
        config: The options of the job.

    Raises:
        CheckpointStorageError: The folder cannot be read or written.
        OptionsError: The storage does not create files exclusively, or the folder is that of a
            batch job.
    """
    if config.checkpoint_dir is None or has_servers_checkpoint(config):
        return places
    root = storage_at(places.deltas, "checkpoint_dir", places.store)
    if has_submissions(root.names()):
        raise OptionsError(
            "checkpoint_dir", "has a batch job that can be continued; name another folder"
        )
    name = chosen_subfolder(root, secrets.token_hex(16))
    return replace(places, deltas=f"{places.deltas}/{name}") if name else places


def checkpoints_in(places: ShardLocations, config: RunnerConfig) -> Checkpoints:
    """Return where and how a streaming job commits its epochs: in the folder of its deltas.

    Args:
        places: Where the job stores its state, see ``in_subfolder``.
        config: The options of the job.

    Raises:
        CheckpointStorageError: The folder cannot be read or written, or the state store does not
            answer.
        OptionsError: The storage does not create files exclusively, or the server of the state
            store loses keys.
    """
    given = shard_root(config)
    if given is None or given == places.deltas:
        storage: CopyingStorage = storage_at(
            places.deltas, "checkpoint_dir", places.store, outlives_job=given is not None
        )
        is_current = _always
    else:
        root = CheckpointStorage(folder_at(given, places.store), given)
        subfolder = Subfolder(folder_at(places.deltas, places.store), places.deltas, root)
        subfolder.make_folder()
        storage = subfolder

        def is_current() -> bool:
            return f"{given}/{subfolder_in(root)}" == places.deltas

    def savepoint() -> Savepoint | None:
        if config.savepoint_path is None:
            return None
        source = existing_storage(config.savepoint_path, "savepoint_path", places.store)
        # The same after a restart, which then removes a pin that has stayed.
        reader = hashlib.sha256(places.deltas.encode()).hexdigest()[:16]
        return Savepoint(check_file, source, storage, reader)

    return Checkpoints(
        storage=storage,
        lineage=places.lineage,
        restart=config.restart,
        key_groups=places.key_groups,
        after_tasks_finish=config.checkpoints_after_tasks_finish,
        tasks_sync=places.tasks_sync,
        renamed=dict(config.renamed_steps),
        namespaces=_namespaces(places, config),
        savepoint=savepoint,
        is_current=is_current,
        new_chain=secrets.token_hex(8),
        owner=b"" if config.server_folder is None else owner_of(config.server_folder),
    )


def owner_of(server_folder: str) -> bytes:
    """Return what the fences of a job have that a job server continues; see ``commit.claim``.

    Args:
        server_folder: The folder of the job, which is named by its id.
    """
    return server_folder.rpartition("/")[2].encode()


def _namespaces(places: ShardLocations, config: RunnerConfig) -> Namespaces | None:
    """Return the namespaces of the state store, which is checked. None: there is none."""
    if places.state_store is None:
        return None
    from beam_spark_runner.state.remote.redis_namespaces import (
        RedisNamespaces,  # an optional library
    )

    namespaces = RedisNamespaces(
        places.state_store,
        shard_root(config) or places.deltas,
        config.job_name or "",
        places.key_groups,
    )
    namespaces.check()
    return namespaces


def storage_at(
    folder: str, option: str, settings: Settings = (), *, outlives_job: bool = True
) -> CheckpointStorage:
    """Open a folder for checkpoints or a savepoint. It is made if it is missing.

    Args:
        folder: Its path, or its URL as ``options.values.checkpoint_folder`` returns it.
        option: The option that names it, for errors.
        settings: The settings of the store's client; see ``UrlFolder``.
        outlives_job: Whether it outlives the job; otherwise, its files need not be durable.

    Raises:
        CheckpointStorageError: The folder cannot be read or written.
        OptionsError: The storage does not create files exclusively, or a setting is invalid.
    """
    storage = CheckpointStorage(folder_at(folder, settings, syncs=outlives_job), folder)
    storage.make(option)
    return storage


def existing_storage(folder: str, option: str, settings: Settings = ()) -> CopyingStorage:
    """Open a checkpoint or savepoint, which must exist; see ``storage_at`` for the arguments.

    Raises:
        OptionsError: The folder is missing. This never applies to object stores.
        CheckpointStorageError: HDFS cannot be reached.
    """
    storage = CheckpointStorage(folder_at(folder, settings), folder)
    if storage.exists():
        name = subfolder_in(storage)
        place = f"{folder}/{name}"
        return Subfolder(folder_at(place, settings), place, storage) if name else storage
    raise OptionsError(option, f"there is no folder {folder}")


def save(source: CopyingStorage, target: CopyingStorage) -> int:
    """Make a savepoint, while the job runs or afterwards.

    Args:
        source: The folder in which the job commits its epochs.
        target: The folder of the savepoint.

    Returns:
        The number of the epoch that was copied.

    Raises:
        NothingCommittedError: No epoch has been committed.
        SavepointExistsError: The target has another savepoint, or a checkpoint.
        CorruptManifestError: The manifest of the source is damaged.
        DamagedFileError: A file that the newest epoch needs is damaged.
        CheckpointStorageError: One of the folders cannot be read or written.
    """
    return make_savepoint(Savepoint(check_file, source, target), _LINEAGE, secrets.token_hex(8))


def verify(folder: CopyingStorage) -> Iterator[VerifiedEpoch]:
    """Verify all files that the manifests in a folder name; see ``verified``."""
    return verified(folder, _LINEAGE, check_file)


def committed_epoch(places: ShardLocations) -> int | None:
    """Return the number of the last committed epoch; None: there is none.

    Args:
        places: Where the job stores its state.

    Raises:
        CorruptManifestError: The newest manifest is damaged.
        RunnerError: The folder cannot be read.
    """
    manifests = newest(
        existing_storage(places.deltas, "checkpoint_dir", places.store), epochs_of(places.lineage)
    )
    return manifests[-1].epoch if manifests else None


def save_job(
    places: ShardLocations | None, path: str, note: Callable[[MadeSavepoint], None]
) -> int:
    """Make a savepoint of a job of this process; see ``save`` for results and errors.

    Args:
        places: Where the job stores its state. None: it has not begun.
        path: The folder of the savepoint; see ``storage_at``.
        note: Is called with the savepoint.
    """
    if places is None:
        raise NothingCommittedError
    source = existing_storage(places.deltas, "checkpoint_dir", places.store)
    target = storage_at(path, SAVEPOINT_ARGUMENT, places.store)
    epoch = save(source, target)
    note(MadeSavepoint(path, epoch, target.put_bytes, time.time()))
    return epoch

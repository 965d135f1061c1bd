"""What tests need to know of a store for checkpoints: an object store or HDFS."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from beam_spark_runner.job.files.shard_places import existing_storage, storage_at
from beam_spark_runner.options.values import checkpoint_folder
from beam_spark_runner.recovery.savepoint_copy import CopyingStorage
from beam_spark_runner.spark.session.launch import start_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointStore(Protocol):
    """A store that runs.

    Attributes:
        environment: what its clients need in the environment of a process.
        checkpoint_flags: options of a pipeline that has its checkpoint there.
        settings: the same for ``UrlFolder``.
    """

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def checkpoint_flags(self) -> Sequence[str]: ...

    @property
    def settings(self) -> tuple[tuple[str, str], ...]: ...

    def folder(self, name: str) -> str:
        """Return the URL of a folder, as users write it."""
        ...


def storage(store: CheckpointStore, name: str) -> CopyingStorage:
    """Open a folder of a store, or the subfolder of the checkpoint in it."""
    folder = checkpoint_folder("here", store.folder(name))
    assert folder is not None
    storage_at(folder, "here", store.settings)
    return existing_storage(folder, "here", store.settings)


@contextlib.contextmanager
def session_for(store: CheckpointStore) -> "Iterator[SparkSession]":
    """Start a local session whose tasks have what a store's clients need.

    The JVM may have been started before the store, with another environment.
    """
    of_tasks = {f"spark.executorEnv.{name}": value for name, value in store.environment.items()}
    session = start_classic("local[2]", "store", {"spark.ui.enabled": "false", **of_tasks})
    yield session
    session.stop()


@contextlib.contextmanager
def environment_of(store: CheckpointStore) -> Iterator[None]:
    """Give this process what a store's clients need."""
    before = dict(os.environ)
    os.environ.update(store.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

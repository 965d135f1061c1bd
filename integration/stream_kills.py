"""Moments of an epoch at which a process dies, those between two lines of the runner's among them.

A module that executors import by its name.
"""

import enum
import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from beam_spark_runner.engine.task import task, task_shard
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.driver_start import KEPT
from beam_spark_runner.recovery.manifest import epochs_of
from beam_spark_runner.recovery.sweep import unneeded
from beam_spark_runner.storage.mounted_folder import MountedFolder
from integration.strikes import Event, Strikes, kill

LINEAGE = "main"


class Sealing(enum.Enum):
    """What a task has come to that seals its shard, in this order."""

    STORING = "half of its delta is written, under a hidden name"
    STORED = "its delta is stored, and its local copy is still the one before"
    SEALED = "its shard is sealed, and nothing is reported"


class Driving(enum.Enum):
    """What a driver has come to, in this order."""

    CLAIMED = "it has claimed its fence, and run nothing"
    RAN = "a Spark job has ended, and nothing of it is committed"
    WRITTEN = "the manifest is written under a hidden name"
    COMMITTED = "the manifest has its name, and still the hidden one"
    SWEEPING = "half of what nobody needs is deleted"


IN_TASKS: tuple[enum.Enum, ...] = (*Event, *Sealing)


class StreamStrikes(Strikes):
    """See ``Strikes``; the event may also be one of ``Sealing``, of a task that has this step."""

    def start_bundle(self) -> None:
        if isinstance(self._event, Sealing):
            _seal.meet = self.meet
        super().start_bundle()


class _Seal:
    """The sealing of shards in this process, once a step has asked for it."""

    def __init__(self) -> None:
        self._meet: Callable[[Sealing], None] | None = None
        self._put, self._seal = MountedFolder.put, task_shard.seal

    @property
    def meet(self) -> Callable[[Sealing], None] | None:
        return self._meet

    @meet.setter
    def meet(self, meet: Callable[[Sealing], None]) -> None:
        if self._meet is None:
            mock.patch.object(MountedFolder, "put", lambda *each: self._stores(*each)).start()
            mock.patch.object(task, "seal", self._seals).start()
        self._meet = meet

    def _stores(self, folder: MountedFolder, name: str, local: Path) -> None:
        assert self._meet is not None
        with mock.patch.object(shutil, "copyfileobj", self._copies):
            self._put(folder, name, local)
        self._meet(Sealing.STORED)

    def _copies(self, source: Any, target: Any, _: int) -> None:
        assert self._meet is not None
        content = source.read()
        target.write(content[: len(content) // 2])
        target.flush()
        self._meet(Sealing.STORING)
        target.write(content[len(content) // 2 :])

    def _seals(self, *arguments: Any) -> Any:
        assert self._meet is not None
        report = self._seal(*arguments)
        self._meet(Sealing.SEALED)
        return report


_seal = _Seal()


def meet_when_storing(meet: Callable[[Sealing], None]) -> None:
    """Call ``meet`` from now on whenever a task in this process stores a delta."""
    _seal.meet = meet


def die_at(moment: Driving, nth: int) -> None:
    """Have this process, a driver, die when it comes to a moment for the nth time."""
    times = itertools.count(1)
    create, delete, link = CheckpointStorage.create, CheckpointStorage.delete, os.link

    def meet(here: Driving) -> None:
        if here is moment and next(times) == nth:
            kill(os.getpid())

    def creates(
        folder: CheckpointStorage, name: str, data: bytes, after: Iterable[str] = ()
    ) -> bool:
        if name.endswith(".manifest"):
            meet(Driving.RAN)
        is_created = create(folder, name, data, after)
        if name.endswith(".fence"):
            meet(Driving.CLAIMED)
        return is_created

    def links(source: str, target: str) -> None:
        is_manifest = target.endswith(".manifest")
        if is_manifest:
            meet(Driving.WRITTEN)
        link(source, target)
        if is_manifest:
            meet(Driving.COMMITTED)

    def deletes(folder: CheckpointStorage, names: Iterable[str]) -> None:
        if all_names := list(names):
            half = len(all_names) // 2
            delete(folder, all_names[:half])
            meet(Driving.SWEEPING)
            delete(folder, all_names[half:])

    mock.patch.object(CheckpointStorage, "create", creates).start()
    mock.patch.object(CheckpointStorage, "delete", deletes).start()
    mock.patch.object(os, "link", links).start()


def check_leftovers(checkpoints: Path) -> None:
    """Assert that a job has left in its checkpoint folder what it needs, and no temporary file."""
    storage = existing_storage(str(checkpoints), "checkpoint_dir")
    names = set(storage.names())
    assert not {name for name in names if name.startswith(".")}
    kept = newest(storage, epochs_of(LINEAGE), len(names))
    assert kept[-1].is_final
    assert len(kept) <= KEPT
    assert unneeded(names, LINEAGE, kept) == ()
    needed = ".manifest", ".fence", ".delta", ".keyed", ".view"
    assert not {name for name in names if not name.endswith(needed)}

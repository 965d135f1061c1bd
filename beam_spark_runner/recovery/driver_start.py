"""One start of a driver: where it continues, what it commits, and what it deletes afterwards."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.recovery.commit import (
    DeletingStorage,
    claim,
    commit,
    newest,
    superseded,
)
from beam_spark_runner.recovery.manifest import (
    IncompatibleCheckpointError,
    Manifest,
    decode,
    fence_in,
    manifest_name,
)
from beam_spark_runner.recovery.migration import Version, differences
from beam_spark_runner.recovery.savepoint import Savepoint, pins
from beam_spark_runner.recovery.sweep import (
    ended_rows,
    half_written,
    left_rows,
    named_by,
    unneeded,
    written_after,
)

KEPT = 3
"""Manifests that are not deleted."""


def _no_savepoint() -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Where a streaming pipeline commits its epochs.

    Attributes:
        storage: of manifests, and of what they name.
        lineage: in their names.
        restart: "resume": something must have been committed; "fresh": nothing; "auto": either.
        key_groups: into how many groups keys fall.
        after_tasks_finish: epochs are committed although tasks of some stages have finished.
        tasks_sync: what tasks have stored is durable; if not, it is before a manifest names it.
        renamed: see ``migration.Version``.
        savepoint: opens the one from which a pipeline goes on that has committed nothing itself;
            None: it begins.
    """

    storage: DeletingStorage
    lineage: str
    restart: str
    key_groups: int
    after_tasks_finish: bool = True
    tasks_sync: bool = True
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    savepoint: Callable[[], Savepoint | None] = _no_savepoint


def _no_problem(last: Manifest) -> tuple[str, ...]:
    return ()


class DriverStart:
    """What a driver knows of the epochs that are committed.

    After an error of ``commit`` or ``sweep`` it is as before: the same epoch may be committed
    again, by this manifest or another one. Only after an IncompatibleCheckpointError or an
    OptionsError of ``commit``, the epoch is committed, by somebody else.

    Args:
        checkpoints: of the pipeline.
        version: of the pipeline, which runs.
        partitions: of each level.
        contradictions: what an earlier run has committed that cannot be so in this version.

    Attributes:
        manifest: the newest one, under the fence of this start. Of epoch 0: nothing is committed.
            It may be of another version, and of another number of partitions.

    Raises:
        IncompatibleCheckpointError: what was committed is of another pipeline.
        OptionsError: the options do not fit to what was committed.
        CorruptManifestError: what was committed is damaged.
        FencedError: another driver has started meanwhile.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        version: Version,
        partitions: int,
        contradictions: Callable[[Manifest], tuple[str, ...]] = _no_problem,
    ) -> None:
        self._checkpoints, self._version = checkpoints, version
        self._storage = checkpoints.storage
        self._contradictions = contradictions
        self._has_swept = False
        self._find_beginning()  # a start that cannot go on must not fence one off that can
        fence = claim(self._storage)
        # The oldest first. An earlier start may have died before it deleted what they supersede.
        self._kept = self._found(KEPT, fence)
        nothing = Manifest(
            epoch=0,
            fence=fence,
            lineage=checkpoints.lineage,
            parent=None,
            plan=version.plan,
            steps=version.steps,
            renamed=version.renamed,
            partitions=partitions,
            key_groups=checkpoints.key_groups,
        )
        found = self._kept[-1] if self._kept else nothing
        self.manifest = dataclasses.replace(found, fence=fence)

    def commit(self, mine: Manifest) -> Manifest:
        """Commit an epoch, and go on from it.

        Args:
            mine: made after ``manifest``.

        Returns:
            What has committed it: this manifest, or that of an earlier start.

        Raises:
            FencedError: another driver has taken the pipeline over.
            CorruptManifestError: another manifest has committed it, which is damaged.
            IncompatibleCheckpointError, OptionsError: another version of the pipeline has committed
                it, from which this one cannot go on.
        """
        new: frozenset[str] = frozenset()
        if not self._checkpoints.tasks_sync:
            new = named_by(mine) - named_by(self.manifest)
        committed = commit(self._storage, mine, new)
        # The fence remains that of this start, whoever has committed the epoch.
        self.manifest = dataclasses.replace(committed, fence=mine.fence)
        self._kept = (*self._kept, committed)[-KEPT:]
        if committed != mine:
            self._check(committed)
        return committed

    def superseding(self) -> Manifest | None:
        """Return a manifest of an epoch in which nothing happens, if an earlier start has failed.

        What tasks have stored for that epoch is left, and may still be committed by a driver with a
        lower fence that is slow. Once this manifest is committed, it cannot, so that later sweeps
        delete the files: those of a pipeline that is started again and again do not pile up.

        Returns:
            None: nothing is left, or nothing was ever committed.
        """
        last = self.manifest
        if not last.epoch or last.is_final:
            return None
        if not written_after(self._storage.names(), last.lineage, last.epoch):
            return None
        return dataclasses.replace(last, epoch=last.epoch + 1, parent=last.epoch)

    def sweep(self) -> None:
        """Delete what no manifest needs that is kept, what was never finished, and older fences.

        The first time also rows of earlier starts: not later, so that another driver that still
        runs comes to its commit, and learns that it is fenced off.
        """
        lineage, fence, epoch = self.manifest.lineage, self.manifest.fence, self.manifest.epoch
        names = self._storage.names()
        pinned_by = pins(names)
        pinned = {manifest_name(lineage, each) for each in pinned_by.values()}.intersection(names)
        old = superseded(self._storage, lineage, KEPT, fence)
        old = tuple(name for name in old if name not in pinned)
        old += half_written(names, lineage, epoch, fence)
        old += ended_rows(names, lineage, fence, epoch)
        if not self._has_swept:
            old += left_rows(names, lineage, fence)
            old += tuple(name for name in names if (claimed := fence_in(name)) and claimed < fence)
            old += tuple(pinned_by)  # whoever still copies pins what is newest then
        if len(self._kept) == KEPT:  # else there are no more, or one cannot be read
            copied = [decode(self._storage.read(name), name) for name in sorted(pinned)]
            old += unneeded(names, lineage, self._kept, copied)
        self._storage.delete(old)
        self._has_swept = True

    def give_up(self) -> None:
        """Delete the rows of an epoch that this start will not bring to its end.

        Tasks that still run may leave some more, which the next start deletes.
        """
        mine = self.manifest
        ended = ended_rows(self._storage.names(), mine.lineage, mine.fence, mine.epoch + 1)
        self._storage.delete(ended)

    def _found(self, count: int, fence: int | None = None) -> tuple[Manifest, ...]:
        """Return what was committed last, if this start may go on from there.

        Until a fence is claimed, other drivers delete all but the newest ones.
        """
        newest_ones = newest(self._storage, self._checkpoints.lineage, count, fence)
        if newest_ones:
            self._check(newest_ones[-1])
        return newest_ones

    def _find_beginning(self) -> None:
        """Check that this start has something to go on from, or to begin with: a savepoint."""
        checkpoints, found = self._checkpoints, self._found(1)
        if found and checkpoints.restart == "fresh":
            raise OptionsError(
                "restart",
                f"an earlier run has committed {found[-1].epoch} epochs in --checkpoint_dir; "
                "remove the folder, or use another one",
            )
        if not found and (savepoint := checkpoints.savepoint()) is not None:
            found = newest(savepoint.source, checkpoints.lineage)
            if not found:
                raise OptionsError("savepoint_path", "there is no savepoint in that folder")
            self._check(found[-1])
            if (missing := savepoint.copy(found[-1])) is not None:
                raise OptionsError(
                    "savepoint_path", f"the savepoint needs {missing}, which is missing"
                )
        if not found and checkpoints.restart == "resume":
            raise OptionsError("restart", "nothing has been committed in --checkpoint_dir")

    def _check(self, found: Manifest) -> None:
        """Raise an error if this start cannot go on from there."""
        if differs := differences(found, self._version):
            raise IncompatibleCheckpointError(differs)
        key_groups = self._checkpoints.key_groups
        if found.key_groups != key_groups:
            raise OptionsError(
                "max_parallelism",
                f"it is {found.key_groups} for as long as what is in --checkpoint_dir is used, "
                f"not {key_groups}",
            )
        if contradictions := self._contradictions(found):
            raise IncompatibleCheckpointError(contradictions)

"""One start of a driver: where it continues, what it commits, and what it deletes then."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beam_spark_runner.core.errors import CheckpointStorageError, InvariantError, OptionsError
from beam_spark_runner.recovery.commit import (
    DeletingStorage,
    check_fence,
    claim,
    commit,
    highest_fence,
    last_owner,
    newest,
    superseded,
)
from beam_spark_runner.recovery.copies import Namespaces
from beam_spark_runner.recovery.manifest import (
    FencedError,
    IncompatibleCheckpointError,
    Manifest,
    decode,
    epochs_of,
    fence_in,
    manifest_name,
)
from beam_spark_runner.recovery.migration import (
    PipelineVersion,
    differences,
    with_store_numbers,
)
from beam_spark_runner.recovery.savepoint_copy import Savepoint, pins
from beam_spark_runner.recovery.sweep import (
    ended_rows,
    half_written,
    left_rows,
    named_by,
    unneeded,
    written_after,
)

KEPT = 3
"""The number of newest manifests that are not deleted."""


def _nothing() -> None: ...


def _yes() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Where and how a streaming pipeline commits its epochs.

    Attributes:
        storage: The storage of manifests, and of the files that they name.
        lineage: The lineage of the pipeline.
        restart: "resume": an epoch must have been committed; "fresh": none must; "auto": either;
            "continue": the owner must have committed one, and nobody else may have started since.
        key_groups: The number of key groups.
        after_tasks_finish: Whether epochs are committed after some tasks have finished.
        tasks_sync: Whether tasks make their files durable; else, the driver does when it commits.
        renamed: See ``migration.PipelineVersion``.
        namespaces: Those of the state store. None: keys are in shards.
        savepoint: Opens the savepoint from which the pipeline starts if it has committed nothing
            itself; returns None if there is no savepoint.
        owner: Whose starts these are: the id of a job that a job server continues; see
            ``commit.claim``. "fresh" allows what the same owner has committed.
        is_current: Returns whether the storage is still that of the checkpoint, see
            ``checkpoint_subfolder``.
        new_chain: The name of the chain of epochs that this start begins, if it begins one; see
            ``Manifest``. No other chain has it.
        on_failed_commit: Is called when the storage refuses a commit, which may be tried again.
    """

    storage: DeletingStorage
    lineage: str
    restart: str
    key_groups: int
    after_tasks_finish: bool = True
    tasks_sync: bool = True
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    namespaces: Namespaces | None = None
    savepoint: Callable[[], Savepoint | None] = _nothing
    owner: bytes = b""
    is_current: Callable[[], bool] = _yes
    new_chain: str = ""
    on_failed_commit: Callable[[], None] = _nothing


def _no_problem(last: Manifest) -> tuple[str, ...]:
    return ()


class DriverStart:
    """A start of a driver, with the newest committed epochs.

    After an error of ``commit`` or ``sweep`` it is unchanged: the same epoch may be committed
    again, by this manifest or another one. Only after an IncompatibleCheckpointError or an
    OptionsError of ``commit``, the epoch has been committed, by another driver.

    Args:
        checkpoints: Where and how the pipeline commits.
        version: The version of the pipeline that runs.
        partitions: The number of partitions of each level.
        contradictions: Returns messages about what a manifest says that is impossible in this
            version.

    Attributes:
        manifest: The newest manifest, with the fence of this start. Epoch 0: nothing is committed.
            It may be of another version, and of another number of partitions.

    Raises:
        IncompatibleCheckpointError: The checkpoint is that of another pipeline.
        OptionsError: The options do not fit the checkpoint.
        CorruptManifestError: The newest manifest is damaged.
        FencedError: Another driver has started meanwhile.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        version: PipelineVersion,
        partitions: int,
        contradictions: Callable[[Manifest], tuple[str, ...]] = _no_problem,
    ) -> None:
        self._checkpoints, self._version = checkpoints, version
        self._storage, self._namespaces = checkpoints.storage, checkpoints.namespaces
        # For the keys of a new checkpoint, or keys that enter the state store.
        self._new_namespace = "" if self._namespaces is None else self._namespaces.new()
        self._claimed = ""  # the namespace that was claimed
        self._dropped: set[int] = set()  # store numbers of stages that the pipeline has no more
        self._form = epochs_of(checkpoints.lineage)
        self._contradictions = contradictions
        self._has_swept = False
        self._find_beginning()  # before the claim: a start that fails must not fence off another
        fence = claim(self._storage, checkpoints.owner)
        if not checkpoints.is_current():
            raise FencedError(fence, 0)  # the checkpoint was removed since it was looked for
        # The oldest first. An earlier start may have ended before it deleted superseded files.
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
            namespace=self._new_namespace,
        )
        nothing = with_store_numbers(nothing)
        found = self._kept[-1] if self._kept else nothing
        chain = found.chain or checkpoints.new_chain
        self.manifest = dataclasses.replace(found, fence=fence, chain=chain)

    def commit(self, mine: Manifest) -> Manifest:
        """Commit an epoch, and continue from it.

        Args:
            mine: The manifest of the epoch after ``manifest``.

        Returns:
            The manifest that has committed the epoch: this one, or one of an earlier start.

        Raises:
            FencedError: Another driver has taken the pipeline over.
            CorruptManifestError: Another manifest has committed the epoch, and is damaged.
            IncompatibleCheckpointError, OptionsError: Another version of the pipeline has committed
                the epoch, and this version cannot continue from it.
        """
        new: frozenset[str] = frozenset()
        if not self._checkpoints.tasks_sync:
            new = named_by(mine) - named_by(self.manifest)
        try:
            committed = commit(self._storage, self._form, mine, new)
        except CheckpointStorageError:
            self._checkpoints.on_failed_commit()
            raise
        if not committed.is_final:
            self._claim(committed.namespace)
        # The fence remains that of this start, whoever has committed the epoch.
        chain = committed.chain or self.manifest.chain  # that of a start before there were chains
        self.manifest = dataclasses.replace(committed, fence=mine.fence, chain=chain)
        self._kept = (*self._kept, committed)[-KEPT:]
        if committed != mine:
            self._check(committed)
        return committed

    def check_fence(self) -> None:
        """Check that no other driver has taken the pipeline over.

        Raises:
            FencedError: Another driver has.
        """
        check_fence(self._storage, self.manifest.fence)

    def claim_again(self) -> None:
        """Claim the namespace again, if the state store has lost that it is claimed.

        Raises:
            CheckpointStorageError: The store does not work.
        """
        if self._namespaces is not None and self._claimed:
            self._namespaces.claim(self._claimed)

    def _claim(self, namespace: str) -> None:
        """Claim the namespace of a manifest that is committed.

        If it was claimed before, a driver that died meanwhile would leave its name in the store.
        """
        if self._namespaces is None or not namespace or self._claimed == namespace:
            return
        if self._namespaces.claim(namespace):
            self._claimed = namespace

    def superseding(self) -> Manifest | None:
        """Return the manifest of an empty epoch, if an earlier start has left files of one.

        A slow driver with a lower fence might still commit these files. Once this manifest is
        committed, it cannot, so that later sweeps delete them. Else the files of a pipeline that is
        restarted again and again would accumulate.

        Returns:
            None if no files are left, nothing was ever committed, or the pipeline is done.
        """
        last = self.manifest
        if not last.epoch or last.is_final:
            return None
        if not written_after(self._storage.names(), last.lineage, last.epoch):
            return None
        return dataclasses.replace(last, epoch=last.epoch + 1, parent=last.epoch)

    @property
    def namespace(self) -> str:
        """The namespace in which the keys are in this run; empty: they are in shards.

        If it is not that of the manifest, the keys have to be moved.
        """
        return "" if self._namespaces is None else self.manifest.namespace or self._new_namespace

    def in_own_namespace(self) -> Manifest | None:
        """Return the manifest of an empty epoch in a new namespace, if this one is not our own.

        Returns:
            None: there is no state store, or the namespace belongs to this checkpoint.
        """
        last = self.manifest
        if self._namespaces is None or not (last.epoch and last.namespace):
            return None  # nothing is committed, or it has no keys and is done
        self._claim(last.namespace)
        if self._claimed != last.namespace and not last.is_final:
            return self._in_namespace(self._namespaces.new(), last.left_namespaces)
        self._sweep_state_store()
        return None

    def in_new_namespace(self) -> Manifest:
        """Return the manifest of an empty epoch in a new namespace of the state store.

        All keys are then copied there, from the keyed deltas. It names the namespace that it
        leaves, so that this start or a later one removes what is there.
        """
        if self._namespaces is None:
            raise InvariantError("there is no state store")
        last = self.manifest
        return self._in_namespace(self._namespaces.new(), (*last.left_namespaces, last.namespace))

    def _in_namespace(self, namespace: str, left: tuple[str, ...]) -> Manifest:
        last = dataclasses.replace(self.manifest, namespace=namespace, left_namespaces=left)
        if not last.epoch:
            return last
        return dataclasses.replace(last, epoch=last.epoch + 1, parent=last.epoch)

    def remove_left_namespaces(self) -> None:
        """Remove all that is in earlier namespaces of this checkpoint; see ``Manifest``.

        The next manifest names them no more.
        """
        left = self.manifest.left_namespaces
        if self._namespaces is None or not left:
            return
        for namespace in left:
            if self._namespaces.claim(namespace):  # else this checkpoint is a copy
                self._namespaces.drop(namespace, range(self.manifest.next_store))
                self._namespaces.forget(namespace)
        self.manifest = dataclasses.replace(self.manifest, left_namespaces=())

    def sweep(self) -> None:
        """Delete files that no kept manifest needs, unfinished files, and rows of ended epochs.

        The first sweep also deletes rows, fences and pins of earlier starts. Later ones do not, so
        that another driver that still runs reaches its commit, and fails because it is fenced off.
        """
        lineage, fence, epoch = self.manifest.lineage, self.manifest.fence, self.manifest.epoch
        names = self._storage.names()
        pinned_by = pins(names)
        pinned = {manifest_name(lineage, each) for each in pinned_by.values()}.intersection(names)
        old = superseded(self._storage, self._form, KEPT, fence)
        old = tuple(name for name in old if name not in pinned)
        old += half_written(names, lineage, epoch, fence)
        old += ended_rows(names, lineage, fence, epoch)
        if not self._has_swept:
            old += left_rows(names, lineage, fence)
            old += tuple(name for name in names if (claimed := fence_in(name)) and claimed < fence)
            old += tuple(pinned_by)  # a copy that then misses files pins the newest epoch
        if len(self._kept) == KEPT:  # else there are fewer manifests, or one cannot be read
            copied = [decode(self._storage.read(name), name) for name in sorted(pinned)]
            old += unneeded(names, lineage, self._kept, copied)
        self._storage.delete(old)
        self._sweep_state_store()
        self._has_swept = True

    def _sweep_state_store(self) -> None:
        """Remove what stages had in the state store that the pipeline has no more."""
        last = self.manifest
        if self._namespaces is None or not self._claimed or self._claimed != last.namespace:
            return
        needed = set() if last.is_final else set(last.stores.values())
        ended = set(range(last.next_store)) - needed - self._dropped
        if ended:
            self._namespaces.drop(last.namespace, ended)
            self._dropped |= ended
        if last.is_final:
            self._namespaces.forget(last.namespace)
        else:
            self._namespaces.note(last.namespace, last.epoch)

    def give_up(self) -> None:
        """Delete the rows of the running epoch, which this start will not finish.

        Tasks that still run may store more rows, which the next start deletes.
        """
        mine = self.manifest
        ended = ended_rows(self._storage.names(), mine.lineage, mine.fence, mine.epoch + 1)
        self._storage.delete(ended)

    def _found(self, count: int, fence: int | None = None) -> tuple[Manifest, ...]:
        """Return the newest manifests; raise an error if this start cannot continue from them.

        Until a fence is claimed, other drivers may delete all but the newest ones.
        """
        newest_ones = newest(self._storage, self._form, count, fence)
        if newest_ones:
            self._check(newest_ones[-1])
        return newest_ones

    def _find_beginning(self) -> None:
        """Check that ``restart`` fits the checkpoint; copy a savepoint if nothing is committed."""
        checkpoints, manifests = self._checkpoints, self._found(1)
        is_mine = bool(checkpoints.owner) and last_owner(self._storage) == checkpoints.owner
        if manifests and checkpoints.restart == "fresh" and not is_mine:
            raise OptionsError(
                "restart",
                f"an earlier run has committed {manifests[-1].epoch} epochs in --checkpoint_dir; "
                "remove the folder, or use another one",
            )
        continues = checkpoints.restart == "continue"
        if manifests and continues and not is_mine:
            raise FencedError(0, highest_fence(self._storage))
        if not manifests and not continues and (savepoint := checkpoints.savepoint()) is not None:
            manifests = newest(savepoint.source, self._form)
            if not manifests:
                raise OptionsError("savepoint_path", "there is no savepoint in that folder")
            self._check(manifests[-1])
            if (missing := savepoint.begin_with(manifests[-1])) is not None:
                raise OptionsError(
                    "savepoint_path", f"the file {missing} of the savepoint is missing"
                )
        if not manifests and checkpoints.restart in ("resume", "continue"):
            raise OptionsError("restart", "nothing has been committed in --checkpoint_dir")

    def _check(self, found: Manifest) -> None:
        """Raise an error if this start cannot continue from a manifest."""
        if differs := differences(found, self._version):
            raise IncompatibleCheckpointError(differs)
        key_groups = self._checkpoints.key_groups
        if found.key_groups != key_groups:
            raise OptionsError(
                "max_parallelism",
                f"it was {found.key_groups} when the checkpoint in --checkpoint_dir was made, and "
                f"cannot be changed to {key_groups}",
            )
        if contradictions := self._contradictions(found):
            raise IncompatibleCheckpointError(contradictions)

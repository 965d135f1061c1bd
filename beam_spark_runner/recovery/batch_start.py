"""One start of the driver of a bounded pipeline: where it continues, commits, and what it removes.

The folder of a job has, next to its manifests: a fence for each start, which says where the start
found the job; and ``ended``, which is created when nothing is left to do, and is the last file to
be removed. ``job_folders`` says where these folders are.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from typing_extensions import override

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.recovery.batch_manifest import (
    BatchManifest,
    commits,
    work_folder,
)
from beam_spark_runner.recovery.commit import (
    DeletingStorage,
    check_fence,
    commit,
    highest_fence,
    newest,
    superseded,
)
from beam_spark_runner.recovery.finishes import finish_in
from beam_spark_runner.recovery.manifest import (
    FencedError,
    IncompatibleCheckpointError,
    fence_in,
    fence_name,
)

SUBMISSION = "submission"
"""The file with what a job of an earlier version runs; see ``job_submissions``."""
ENDED = "ended"
FILES = "files"
"""The subfolder of the files that the pipeline needs."""
PROBE = "probe"
"""The subfolder in which executors show that they share the folder with the driver."""
KEPT = 2
"""The number of newest manifests that are not deleted."""
MAX_STARTS = 3
"""How many starts may end at one place, before the job is refused: it might kill its driver."""

_STOPPED = re.compile(r"(?P<fence>\d{12})\.stopped")
_IDLE = re.compile(r"(?P<fence>\d{12})\.idle")
_CHANGED = (
    "the job was started by another version of this pipeline, and cannot be continued by this one. "
    "Undo the change, or begin again: with an empty --checkpoint_dir, or as another job of a job "
    "server"
)


_Result = TypeVar("_Result")


class Outlast(Protocol):
    """Does work again while it raises a ``CheckpointStorageError``, or for some time."""

    def __call__(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of ``work``, which may be repeated."""
        ...


def try_once(work: Callable[[], _Result]) -> _Result:
    """See ``Outlast``: without patience."""
    return work()


class WorkFolders(Protocol):
    """The folders in which the tasks of Spark jobs store their output."""

    def names(self, folder: str) -> Iterable[str]:
        """Return the names of all files in a folder; none if the folder does not exist."""
        ...

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it. It is not an error if it does not exist."""
        ...


class CrashLoopError(RunnerError):
    """Starts of a job have ended at one place, again and again.

    Args:
        starts: How many of them have.
        commit: The number of the last commit.
        finished: How many partitions of the next Spark job were finished.
    """

    def __init__(self, starts: int, commit: int, finished: int) -> None:
        super().__init__(starts, commit, finished)
        self.starts, self.commit, self.finished = starts, commit, finished

    @override
    def __str__(self) -> str:
        return (
            f"{self.starts} starts of this job have ended at the same place, after {self.commit} "
            f"commits and with {self.finished} partitions of the next Spark job finished. A "
            "corrected program has to begin again, since starts run the code of the first one: "
            "with an empty --checkpoint_dir, or as another job of a job server. If each partition "
            "takes long, more of them (--parallelism) are finished sooner. In a program, "
            "--restart=resume tries once more"
        )


class SparkClient(NamedTuple):
    """A client of Spark Connect: if it dies, the server continues its Spark job for a while.

    Attributes:
        application: The id of the server's Spark application.
        session: The id of its session.
        tag: The tag of its Spark jobs.
    """

    application: str
    session: str
    tag: str


class _Place(NamedTuple):
    """Where a start found the job."""

    commit: int
    finished: int


class _Claim:
    """A fence that a start creates. If the answer of the storage is lost, it is asked again.

    A second fence would count as a start that has died.
    """

    def __init__(self, storage: DeletingStorage, content: bytes) -> None:
        self._storage, self._content = storage, content
        self._tried = 0

    def succeeds(self, fence: int) -> bool:
        """Create a fence; return whether it is this start's."""
        name, was_tried = fence_name(fence), self._tried == fence
        self._tried = fence
        if self._storage.create(name, self._content):
            return True
        return was_tried and self._storage.read(name) == self._content


class BatchStart:
    """A start of the driver of a bounded pipeline, with its newest commit.

    After an error of ``commit`` it is unchanged: the same manifest may be committed again.

    Args:
        storage: The folder of the job.
        work: The folders of its Spark jobs.
        plan: The fingerprint of the plan.
        tries_again: Whether to start although earlier starts have ended at the same place.
        client: Of this start. None: if its driver dies, no Spark job of it continues.
        outlast: Is called with each step of the start.
        mark: Random: tells this start from others.

    Attributes:
        manifest: The newest manifest, with the fence of this start.
        number: The number of this start, its fence.
        previous: The clients of earlier starts that have died, as far as their fences are kept.

    Raises:
        IncompatibleCheckpointError: The plan is another one.
        CrashLoopError: Earlier starts have ended at the same place.
        CorruptManifestError: The newest manifest is damaged.
        FencedError: Another driver has started meanwhile.
    """

    def __init__(
        self,
        storage: DeletingStorage,
        work: WorkFolders,
        plan: str,
        *,
        tries_again: bool = False,
        client: SparkClient | None = None,
        outlast: Outlast = try_once,
        mark: str = "",
    ) -> None:
        self._storage, self._work, self._form = storage, work, commits()
        self._client = client
        last, place = outlast(lambda: self._look(plan, tries_again=tries_again))
        self.number = self._claim(place, mark, outlast)
        self.previous = outlast(self._clients_that_died)
        manifests = outlast(lambda: newest(storage, self._form, KEPT, self.number))
        self._kept = manifests
        last = manifests[-1] if manifests else last
        self.manifest = dataclasses.replace(last, fence=self.number)

    def _look(self, plan: str, *, tries_again: bool) -> tuple[BatchManifest, _Place]:
        """Return the newest commit, and where this start finds the job."""
        manifests = newest(self._storage, self._form)
        last = manifests[-1] if manifests else BatchManifest(commit=0, fence=0, plan=plan)
        if last.plan != plan:
            raise IncompatibleCheckpointError(("its plan is another one",), _CHANGED)
        place = _Place(last.commit, _finished(self._work, last.commit + 1))
        if not tries_again and _deaths_at(self._storage, place) >= MAX_STARTS:
            raise CrashLoopError(MAX_STARTS, *place)
        return last, place

    def commit(self, mine: BatchManifest) -> BatchManifest:
        """Commit the manifest after ``manifest``, and continue from what is committed.

        Returns:
            The manifest that was committed: this one, or one of an earlier start.

        Raises:
            FencedError: Another driver has taken the job over.
            CorruptManifestError: Another manifest was committed, and is damaged.
        """
        committed = commit(self._storage, self._form, mine)
        self.manifest = dataclasses.replace(committed, fence=self.number)
        self._kept = (*self._kept, committed)[-KEPT:]
        return committed

    def check_fence(self) -> None:
        """Check that no other driver has taken the job over.

        Raises:
            FencedError: Another driver has.
        """
        check_fence(self._storage, self.number)

    def sweep(self, runs: Iterable[int]) -> frozenset[int]:
        """Remove manifests that are superseded, and the files of Spark jobs that none names.

        Args:
            runs: The numbers of commits whose files may be removed, unless a kept manifest names
                them.

        Returns:
            The numbers of those that were removed.
        """
        self._storage.delete(superseded(self._storage, self._form, KEPT, self.number))
        if highest_fence(self._storage) > self.number:
            return frozenset()
        old = self.number - MAX_STARTS
        names = (
            (fence_in(name) or stopped_in(name) or idle_in(name), name)
            for name in self._storage.names()
        )
        self._storage.delete([name for fence, name in names if fence is not None and fence < old])
        needed = frozenset().union(*(manifest.runs() for manifest in self._kept))
        unneeded = frozenset(runs) - needed
        for run in sorted(unneeded):
            self._work.remove(work_folder(run))
        return unneeded

    def stop(self) -> None:
        """Note that this start ends in order: it does not count as one that has died."""
        self._storage.create(f"{self.number:012d}.stopped", b"")

    def withdraw(self) -> None:
        """Remove the fence of this start, which has claimed a job that was over."""
        self._storage.delete([fence_name(self.number)])

    def rest(self) -> None:
        """Note that this start has failed, and that none of its Spark jobs continues."""
        if self._client is not None:
            self._storage.create(f"{self.number:012d}.idle", b"")

    def end(self) -> bool:
        """Note that the job is done, with its metrics; its files may then be removed.

        Returns:
            Whether this was noted: no other start has claimed the job, or has removed it.
        """
        if not self._is_latest():
            return False
        metrics = [info.hex() for infos in self.manifest.done.values() for info in infos]
        try:
            self._storage.create(ENDED, json.dumps(metrics).encode())
        except FencedError:
            return False
        return True

    def _is_latest(self) -> bool:
        if highest_fence(self._storage) != self.number:
            return False
        return self._storage.read(fence_name(self.number)) == self._claimed

    def _claim(self, place: _Place, mark: str, outlast: Outlast) -> int:
        fence = outlast(lambda: highest_fence(self._storage))
        fields = {**place._asdict(), "client": self._client, "mark": mark}
        self._claimed = json.dumps(fields).encode()
        claim = _Claim(self._storage, self._claimed)
        while True:
            fence += 1
            if outlast(partial(claim.succeeds, fence)):
                return fence

    def _clients_that_died(self) -> tuple[SparkClient, ...]:
        names = self._storage.names()
        fences = {fence for name in names if (fence := fence_in(name)) is not None}
        ended = {number for name in names for number in (stopped_in(name), idle_in(name))}
        earlier = sorted(fence for fence in fences - ended if fence < self.number)
        clients = [_content_of(self._storage, fence).get("client") for fence in earlier]
        return tuple(SparkClient(*client) for client in clients if client is not None)


def deaths_without_progress(storage: DeletingStorage, work: WorkFolders) -> int:
    """Return how many of the last starts have died where the job is now, ``MAX_STARTS`` at most.

    Args:
        storage: The folder of the job.
        work: The folders of its Spark jobs.

    Raises:
        CorruptManifestError: The newest manifest is damaged.
    """
    manifests = newest(storage, commits())
    commit = manifests[-1].commit if manifests else 0
    return _deaths_at(storage, _Place(commit, _finished(work, commit + 1)))


def _deaths_at(storage: DeletingStorage, place: _Place) -> int:
    names = storage.names()
    fences = sorted(fence for name in names if (fence := fence_in(name)) is not None)
    stopped = set(map(stopped_in, names))
    deaths = 0
    for fence in reversed(fences[-MAX_STARTS:]):
        content = _content_of(storage, fence)
        if fence in stopped or _Place(content["commit"], content["finished"]) != place:
            break
        deaths += 1
    return deaths


def _finished(work: WorkFolders, run: int) -> int:
    finishes = (finish_in(name) for name in work.names(work_folder(run)))
    return len({finish.partition for finish in finishes if finish is not None})


def _content_of(storage: DeletingStorage, fence: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(storage.read(fence_name(fence)))
    return content


def stopped_in(name: str) -> int | None:
    """Return the start that has ended in order, by the name of a file; None: it is another file."""
    match = _STOPPED.fullmatch(name)
    return int(match["fence"]) if match else None


def idle_in(name: str) -> int | None:
    """Return the start that has no Spark jobs any more, see ``rest``; None: it is another file."""
    match = _IDLE.fullmatch(name)
    return int(match["fence"]) if match else None

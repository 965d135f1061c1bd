"""The storage that all drivers and hosts share, one question at a time."""

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import BinaryIO, TypeVar

from beam_spark_runner.recovery.manifest import fence_in
from beam_spark_runner.state.delta import read_chain
from beam_spark_runner.state.delta_files import DeltaFiles

T = TypeVar("T")


class StorageError(Exception):
    """The storage has failed, or a file is not there; a driver ends by it."""


class KilledError(BaseException):
    """The process is killed where it is."""


class Files:
    """What is stored, by name; and who wants to know of changes.

    Attributes:
        content: of all files.
        chains: of each delta that was ever stored, the names of those that its shard is rebuilt
            from, as the file itself says.
        on_created: called after a file was created under a name of its own.
        on_deleted: called after a file was deleted.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.chains: dict[str, set[str]] = {}
        self.on_created: Callable[[str], None] = lambda name: None
        self.on_deleted: Callable[[str], None] = lambda name: None

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        if name in self.content:
            return False
        self.content[name] = data
        self.on_created(name)
        return True

    def delete(self, name: str) -> None:
        if self.content.pop(name, None) is not None:
            self.on_deleted(name)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]


class Answers:
    """Storage for one driver, which pauses after each answer.

    Listing is no instant: what is created or deleted meanwhile may be in it or not.

    Attributes:
        pause: lets the world go on.
        doing: "commit" or "sweep", by what was asked last; empty: another thing.
        loss: what becomes of the next file that is created: "": nothing; "before": an error, and
            it is not there; "after": an error, but it is there.
        has_failed: it was so for some file.
        fence: that the driver has claimed; 0: none.
        is_dead: the process of the driver has ended: nothing is done for it.
    """

    def __init__(self, files: Files, random: Random) -> None:
        self._files, self._random = files, random
        self.pause: Callable[[], None] = lambda: None
        self.doing = ""
        self.loss = ""
        self.has_failed = False
        self.fence = 0
        self.is_dead = False

    def names(self) -> Sequence[str]:
        first = self._answer(lambda: frozenset(self._files.content))

        def after() -> tuple[str, ...]:
            last = frozenset(self._files.content)
            doubtful = [name for name in sorted(first ^ last) if self._random.random() < 0.5]
            return (*sorted(first & last), *doubtful)

        return self._answer(after)

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            if name not in self._files.content:
                raise StorageError(f"there is no {name}")
            return self._files.content[name]

        return self._answer(read)

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        def create() -> bool:
            loss, self.loss = self.loss, ""
            self.has_failed |= bool(loss)
            if loss == "before":
                raise StorageError(f"{name} was not created")
            is_new = self._files.create(name, data)
            if is_new:
                self.fence = fence_in(_last_part(name)) or self.fence
            if loss == "after":
                raise StorageError(f"whether {name} was created is not known")
            return is_new

        self.doing = "start" if fence_in(_last_part(name)) else "commit"
        return self._answer(create)

    def delete(self, names: Iterable[str]) -> None:
        self.doing = "sweep"
        for name in names:
            self._answer(lambda name=name: self._files.delete(name))  # type: ignore[misc]

    def _answer(self, ask: Callable[[], T]) -> T:
        if self.is_dead:
            raise KilledError
        try:
            return ask()
        finally:
            self.pause()
            if self.is_dead:
                raise KilledError


class Deltas(DeltaFiles):
    """See ``DeltaFiles``, for the tasks of all hosts.

    Attributes:
        files: all that is stored.
        fault: what becomes of the next delta: "": it is stored; "full": an error; "hidden": the
            task is killed while it writes; "stored": the task is killed just after that.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self.fault = ""

    def open(self, name: str) -> BinaryIO:
        if name not in self.files.content:
            raise FileNotFoundError(name)
        return io.BytesIO(self.files.content[name])

    def put(self, name: str, local: Path) -> None:
        fault, self.fault = self.fault, ""
        data = local.read_bytes()
        if fault == "full":
            raise OSError("the storage is full")
        if fault == "hidden":
            self.files.content[f".{name}.0a1b2c3d"] = data[: len(data) // 2]
            raise KilledError
        stem = name.rsplit("-", 2)[0]
        self.files.chains[name] = {
            f"{stem}-{epoch:012d}-{attempt:016x}.delta"
            for (epoch, attempt), _, _ in read_chain(io.BytesIO(data), name)
        }
        assert name not in self.files.content, "an attempt has stored its delta twice"
        self.files.content[name] = data
        if fault == "stored":
            raise KilledError

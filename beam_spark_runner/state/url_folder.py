"""A folder that is not mounted: what an object store and HDFS have in common."""

import contextlib
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, cast

from beam_spark_runner.state.delta_files import DeltaFiles


@dataclass(frozen=True, slots=True)
class UrlFolder(DeltaFiles):
    """See ``DeltaFiles``. Files appear whole or not at all, and are durable by then.

    All methods raise an ``OSError`` if the storage does not answer, or refuses something.

    Threads: any.

    Attributes:
        url: of the folder, as Hadoop's connectors write it.
        settings: of clients. Names that begin with "hdfs_" are Beam's options of HDFS; all others
            are those of obstore's client of S3, such as ("endpoint", "https://…").
        scratch: local folder for copies while they are in use; None: that for temporary files.
    """

    two_may_create: ClassVar[str]
    """What is wrong with a storage in which two drivers can create one file."""

    url: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets among them
    scratch: str | None = None

    def open(self, name: str) -> BinaryIO:
        """See ``DeltaFiles.open``: of a local copy."""
        # Without a name, so that nothing is left of it. The caller closes it.
        copy = tempfile.TemporaryFile(dir=self.scratch)  # noqa: SIM115
        try:
            self._download(name, copy)
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return cast(BinaryIO, copy)

    @contextlib.contextmanager
    def downloaded(self, name: str) -> Iterator[str]:
        """Return the path of a local copy, which is removed afterwards. Maps of it stay valid.

        Raises:
            FileNotFoundError: there is no file of this name.
            OSError: the storage does not answer, or the local disk is full.
        """
        with tempfile.NamedTemporaryFile(prefix="beam-", dir=self.scratch) as target:
            self._download(name, target)
            target.flush()
            yield target.name

    def put(self, name: str, local: Path) -> None:
        """See ``DeltaFiles.put``."""
        with local.open("rb") as content:
            self.put_content(name, content)

    @abstractmethod
    def make(self) -> None:
        """Make the folder, if it can be missing and is."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the folder is there. It always is, where files are its only trace."""

    @abstractmethod
    def put_content(self, name: str, content: BinaryIO) -> None:
        """Store a file.

        Args:
            name: of it. One that is there has the same content, and may be replaced.
            content: can be sought in, and is read from where it is to its end.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file, unless there is one of that name: then return False.

        After an error, or if the answer was lost and it was tried again, it may be there.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none of this name.
        """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all files in the folder, without those of folders below."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files. It is not an error if one does not exist."""

    @abstractmethod
    def _download(self, name: str, target: IO[bytes]) -> None:
        """Write the content of a file to a local one.

        Raises:
            FileNotFoundError: there is none of this name.
        """

"""The interface of folders that are not mounted, in object stores and in HDFS."""

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
    """See ``DeltaFiles``. Files appear whole or not at all, and are then durable.

    All methods raise an ``OSError`` if the storage does not answer, or refuses a request.

    Threads: any.

    Attributes:
        url: The URL of the folder, as Hadoop's connectors write it.
        settings: Settings of clients, as names and values. Names that begin with "hdfs_" are
            Beam's options of HDFS; all others are settings of obstore's S3 client, such as
            ("endpoint", "https://…").
        scratch: The local folder for temporary copies; None: the system's.
    """

    two_may_create: ClassVar[str]
    """A phrase for messages: the defect of a storage in which two drivers can create one file."""

    url: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # secrets among them
    scratch: str | None = None

    def open(self, name: str) -> BinaryIO:
        """See ``DeltaFiles.open``. Opens a local copy."""
        # The copy has no name, so that it vanishes with the process. The caller closes it.
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
        """Yield the path of a local copy, which is removed afterwards. Memory maps stay valid.

        Raises:
            FileNotFoundError: There is no file of this name.
            OSError: The storage does not answer, or the local disk is full.
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
        """Create the folder if it is missing, unless it is one of an object store."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the folder exists; in object stores, this is always true."""

    @abstractmethod
    def put_content(self, name: str, content: BinaryIO) -> None:
        """Store a file.

        Args:
            name: The name of the file. An existing one has the same content; it may be replaced.
            content: The seekable content, read from its current position to its end.
        """

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file; return False if there is one of that name.

        After an error, the file may exist. If the client has repeated a request whose answer was
        lost, this may return False although the file is its own.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: There is no file of this name.
        """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all files in the folder, without those in subfolders."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files. It is not an error if one does not exist."""

    @abstractmethod
    def _download(self, name: str, target: IO[bytes]) -> None:
        """Write the content of a file to a local one.

        Raises:
            FileNotFoundError: There is no file of this name.
        """

"""The interface of a folder that the driver and all tasks share, wherever it is stored."""

import contextlib
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, cast

from typing_extensions import override

Settings = tuple[tuple[str, str], ...]


class Folder(ABC):
    """A folder of files that appear whole or not at all. The object is sent to executors.

    All methods raise an ``OSError`` if the storage does not answer, is full, or refuses a request.

    Threads: any.
    """

    @abstractmethod
    def __truediv__(self, name: str) -> "Folder":
        """Return a folder in this folder, which need not exist."""

    @abstractmethod
    def open(self, name: str) -> BinaryIO:
        """Open a file for reading, from random positions.

        Raises:
            FileNotFoundError: There is no file of this name.
        """

    @abstractmethod
    def local(self, name: str) -> contextlib.AbstractContextManager[str]:
        """Yield the path of a file, or of a local copy, which is removed when the context ends.

        Memory maps of the file stay valid.

        Raises:
            FileNotFoundError: There is no file of this name.
        """

    @abstractmethod
    def new_file(self, name: str) -> contextlib.AbstractContextManager[str]:
        """Yield the path to which a new file is written.

        Others find the file once the context has ended without an exception. It need not be
        durable.
        """

    @abstractmethod
    def put(self, name: str, local: Path) -> None:
        """Store a copy of a local file, durably (unless ``create`` makes it durable later)."""

    @abstractmethod
    def put_content(self, name: str, content: BinaryIO) -> None:
        """Store a file, which ``create`` makes durable if it names it.

        Args:
            name: The name of the file. An existing one has the same content; it may be replaced.
            content: The seekable content, read from its current position to its end.
        """

    @abstractmethod
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """Create a file durably; return False if there is one of that name.

        After an error, the file may exist. If the client has repeated a request whose answer was
        lost, this may return False although the file is its own.

        Args:
            name: The name of the file.
            data: Its content.
            after: The names of files that other processes have stored, which are made durable
                before this one appears.
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
    def folders(self) -> Sequence[str]:
        """Return the names of the folders in the folder; in object stores, those with a file."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files. It is not an error if one does not exist."""

    @abstractmethod
    def make(self) -> None:
        """Create the folder if it is missing, unless it is one of an object store."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the folder exists; in object stores, this is always true."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the folder with all that is in it. It is not an error if it does not exist."""


@dataclass(frozen=True, slots=True)
class UrlFolder(Folder):
    """See ``Folder``: one that has a URL. All that is stored in it is durable.

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
    settings: Settings = field(default=(), repr=False)  # secrets among them
    scratch: str | None = None

    @override
    def __truediv__(self, name: str) -> "UrlFolder":
        return type(self)(f"{self.url}/{name}", self.settings, self.scratch)

    @override
    def open(self, name: str) -> BinaryIO:
        """Opens a local copy."""
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
    @override
    def local(self, name: str) -> Iterator[str]:
        with tempfile.NamedTemporaryFile(prefix="beam-", dir=self.scratch) as target:
            self._download(name, target)
            target.flush()
            yield target.name

    @contextlib.contextmanager
    @override
    def new_file(self, name: str) -> Iterator[str]:
        with tempfile.NamedTemporaryFile(prefix="beam-", dir=self.scratch) as file:
            yield file.name
            self.put(name, Path(file.name))

    @override
    def put(self, name: str, local: Path) -> None:
        with local.open("rb") as content:
            self.put_content(name, content)

    @abstractmethod
    def _download(self, name: str, target: IO[bytes]) -> None:
        """Write the content of a file to a local one.

        Raises:
            FileNotFoundError: There is no file of this name.
        """


def copied_to(folder: Folder, source: Path) -> None:
    """Copy a local file to a folder, under its own name; it need not be durable."""
    with folder.new_file(source.name) as path:
        shutil.copyfile(source, path)

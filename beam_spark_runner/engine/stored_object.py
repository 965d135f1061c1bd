"""Objects of a store that has URLs, by Beam's file systems: written, read and removed.

Beam finds a file system's options (``--s3_endpoint_url``, ``--hdfs_host`` and so on) in class
attributes, which other jobs in the same process may have set. Here each object has its own.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystem import CompressionTypes, FileSystem
from apache_beam.io.filesystems import FileSystems

from beam_spark_runner.harness.beam.job_options import JobOptions

_COPIED_BYTES = 8 << 20
_MAX_CHARACTERS = 300
NO_OPTIONS = "{}"
"""Empty options: file systems get their addresses from the environment of the process."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, or a folder of them.

    Attributes:
        url: the URL, as Beam's file systems take it.
        options_json: the pipeline's options, see ``sdk_options.options_json``.
    """

    url: str
    options_json: str

    def upload(self, path: str) -> None:
        """Copy a local file to the object, which exists whole or not at all."""
        with open(path, "rb") as source, self._create() as target:
            shutil.copyfileobj(source, target, _COPIED_BYTES)

    def write(self, content: bytes) -> None:
        """Create the object."""
        with self._create() as target:
            target.write(content)

    def read(self) -> bytes:
        """Return the object's content."""
        with self._open() as source:
            return bytes(source.read())

    @contextlib.contextmanager
    def downloaded(self) -> Iterator[str]:
        """Return the path of a local copy, which is removed afterwards. Maps of it stay valid."""
        with tempfile.NamedTemporaryFile(prefix="beam-") as target:
            with self._open() as source:
                shutil.copyfileobj(source, target, _COPIED_BYTES)
            target.flush()
            yield target.name

    def remove(self) -> None:
        """Delete the object, or the folder with all that is in it."""
        self._file_system().delete([self.url])

    def _create(self) -> contextlib.AbstractContextManager[Any]:
        created: contextlib.AbstractContextManager[Any] = self._file_system().create(
            self.url, "application/octet-stream", CompressionTypes.UNCOMPRESSED
        )
        return created

    def _open(self) -> contextlib.AbstractContextManager[Any]:
        opened: contextlib.AbstractContextManager[Any] = self._file_system().open(
            self.url, "application/octet-stream", CompressionTypes.UNCOMPRESSED
        )
        return opened

    def _file_system(self) -> FileSystem:
        scheme = FileSystems.get_scheme(self.url)
        for kind in FileSystem.get_all_subclasses():
            if kind.scheme() == scheme:
                return kind(JobOptions(self.options_json).for_file_systems)
        raise ValueError(
            f"Beam has no file system for {scheme}:// here: install apache-beam with its extra "
            "(aws, gcp, azure or hadoop)"
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an exception of a store's client, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_MAX_CHARACTERS]

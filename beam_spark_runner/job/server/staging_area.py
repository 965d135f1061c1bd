"""Storage for the files that clients stage at a job server: a folder, or an object store's URL."""

import contextlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.rendering import first_line
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.urls import hadoop_url, is_url

_LOGGER = logging.getLogger(__name__)
_PROBE = "probe"


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The files of a server, or of one of its jobs.

    Attributes:
        location: A folder of this machine, or a URL in the form of Hadoop's connectors. It need
            not exist before a file is received.
        is_durable: Whether a crash of the machine leaves the files.
    """

    location: str
    is_durable: bool = False

    def of_job(self, name: str) -> "StagingArea":
        """Return the area of one job, which is a part of this one."""
        return StagingArea(f"{self.location}/{name}", self.is_durable)

    @contextlib.contextmanager
    def receive(self) -> Iterator[Any]:
        """Yield a temporary file to write, which is deleted on exit unless ``store`` has moved it.

        Raises:
            OSError: The file cannot be created.
        """
        folder = None
        if not is_url(self.location):
            folder = Path(self.location)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(prefix="beam-", dir=folder, delete=False)  # noqa: SIM115
        try:
            with file:
                yield file
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)

    def store(self, path: str, name: str) -> str:
        """Move or upload a received file to the area; return its location.

        Args:
            path: The path of the file of ``receive``.
            name: The name of the file in the area.

        Raises:
            OSError: The file cannot be written to the area.
        """
        location = f"{self.location}/{name}"
        if is_url(self.location) or self.is_durable:
            self._folder.put(name, Path(path))
        else:
            os.replace(path, location)
        return location

    def remove(self) -> None:
        """Delete all files. A warning is logged if an object store fails."""
        if not is_url(self.location):
            shutil.rmtree(self.location, ignore_errors=True)
            return
        try:
            self._folder.remove()
        except OSError as error:
            _LOGGER.warning("%s was not deleted: %s", self.location, first_line(error))

    @property
    def _folder(self) -> Folder:
        return folder_at(self.location)


def open_staging_area(location: str | None) -> StagingArea:
    """Return the area of one server: a new folder in ``--artifacts_dir``.

    Args:
        location: The value of ``--artifacts_dir``. None: the folder for temporary files.

    Raises:
        OptionsError: No files can be written there.
    """
    if location is None or not is_url(location):
        try:
            if location is not None:
                Path(location).mkdir(parents=True, exist_ok=True)
            return StagingArea(tempfile.mkdtemp(prefix="beam-staged-", dir=location))
        except OSError as error:
            folder = location or tempfile.gettempdir()
            raise OptionsError("artifacts_dir", f"{folder}: {error.strerror}") from error
    url = store_url("artifacts_dir", location)
    area = StagingArea(f"{url}/beam-staged-{uuid.uuid4().hex[:12]}")
    try:
        probed = folder_at(area.location)
        probed.create(_PROBE, b"probe")
        probed.delete([_PROBE])
    except OSError as error:
        raise OptionsError(
            "artifacts_dir",
            f"this server cannot write {location}: {first_line(error)}. Its client gets "
            "addresses and credentials from the environment of the server (AWS_ENDPOINT_URL, "
            "AWS_ACCESS_KEY_ID and so on)",
        ) from error
    return area


def store_url(option: str, url: str) -> str:
    """Return the URL of a server's folder in the form of Hadoop's connectors.

    Args:
        option: The option that names the folder, for errors.
        url: Its value, a URL.

    Raises:
        OptionsError: It is no object store.
    """
    try:
        hadoop_form = hadoop_url(url)
    except ValueError as error:
        raise OptionsError(option, str(error)) from error
    if hadoop_form.startswith("hdfs:"):
        raise OptionsError(
            option,
            f"{url}: clients of HDFS find the namenode in options of a pipeline, which a "
            "server does not have; name an object store, or a folder",
        )
    return hadoop_form

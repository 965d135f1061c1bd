"""The temporary folder of a job, on this machine or on storage that all executors share."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.driving.session import Session
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.job.files.identity import make_folder, name_of
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.stored_folder import check_stored_folder, remove_stored_folder
from beam_spark_runner.storage.folder import Folder, Settings
from beam_spark_runner.storage.folder_at import folder_at, settings_of_tasks
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.urls import hadoop_url, is_url


def check_that_nobody_wants_stable_input(graph: Graph) -> None:
    """Raise an OptionsError if a step has @RequiresStableInput: executors may lose its rows."""
    for step in graph.transforms.values():
        if step.requires_stable_input:
            raise OptionsError(
                "temp_location",
                f"{step.name} asks for stable input (@RequiresStableInput), and rows that are "
                "stored on executors may be lost with them; name storage that this machine "
                "and all executors share",
            )


class JobStorage:
    """The temporary folder of one job, which exists from ``open`` to ``remove``.

    Attributes:
        mounted: A path on this machine, which is mounted on the executors of a cluster, too. None:
            there is none.
        rows: The path or URL to which Spark writes materialised rows. None: executors store them.
        files: The folder to which driver and tasks write files. None: Spark sends files to
            executors.
    """

    def __init__(
        self,
        job_id: str,
        folder: Path | None,
        location: str | None,
        session: Session,
        settings: Settings,
        warn: Callable[[str], None],
    ) -> None:
        """Store the arguments; nothing is made yet.

        Args:
            job_id: The id of the job.
            folder: See ``identity.folder_of``.
            location: --temp_location; None: not set.
            session: The Spark session in which the job runs.
            settings: The settings of the store's client, see ``UrlFolder``.
            warn: Is called with warnings for the user.
        """
        self.mounted: Path | None = None
        self.rows: str | None = None
        self.files: Folder | None = None
        self._name = name_of(job_id)
        self._folder = folder
        self._location = location
        self._session = session
        self._settings = settings
        self._warn = warn
        self._url_folder: Folder | None = None

    def open(self) -> None:
        """Make the folder.

        Raises:
            FileExistsError: The folder exists already.
            OptionsError: --temp_location is a URL that Spark cannot write to.
        """
        if self._folder is not None:
            make_folder(self._folder)
            self.mounted = self._folder
            self.files = MountedFolder(str(self._folder), syncs=False)
            if not self._session.is_local:
                self.rows = str(self._folder)
        elif self._location is not None and is_url(self._location):
            self._open_url(self._location)

    def _open_url(self, location: str) -> None:
        try:
            url = hadoop_url(location)
        except ValueError as error:
            raise OptionsError("temp_location", str(error)) from error
        folder = folder_at(url, settings_of_tasks(url, self._settings))
        reason = check_stored_folder(self._spark_session, folder, url)
        self.rows = f"{url}/{self._name}"
        self._url_folder = folder / self._name
        if not reason:
            self.files = self._url_folder
            return
        self._warn(
            f"this runner's clients of stores cannot use --temp_location={location} ({reason}). "
            "Spark stores rows there, but copies side inputs and packages to each executor, "
            "up to 1 GB each"
        )

    @property
    def _spark_session(self) -> SessionHandle:
        # Other sessions are local: their jobs have a folder of this machine.
        return cast("SessionHandle", self._session)

    def remove(self) -> None:
        """Delete the folder with its content, if ``open`` has made it."""
        if self.mounted is not None:
            shutil.rmtree(self.mounted, ignore_errors=True)
        elif self.rows is not None and self._url_folder is not None:
            try:
                remove_stored_folder(self._spark_session, self._url_folder, self.rows)
            except Exception as error:
                self._warn(f"{self.rows} could not be deleted: {error}")

"""Chooses the kind of folder by its path or URL."""

from beam_spark_runner.storage.folder import Folder, Settings
from beam_spark_runner.storage.hdfs_folder import HdfsFolder, with_user
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder
from beam_spark_runner.storage.urls import is_url


def folder_at(
    place: str, settings: Settings = (), *, scratch: str | None = None, syncs: bool = True
) -> Folder:
    """Return a folder.

    Args:
        place: A path, or a URL in the form of Hadoop's connectors, see ``hadoop_url``.
        settings: See ``UrlFolder``.
        scratch: See ``UrlFolder``.
        syncs: See ``MountedFolder``.
    """
    if not is_url(place):
        return MountedFolder(place, syncs)
    return (HdfsFolder if _is_hdfs(place) else ObjectFolder)(place, settings, scratch)


def settings_of_tasks(place: str, settings: Settings) -> Settings:
    """Return settings with which tasks access the folder as this process's user."""
    return with_user(settings) if _is_hdfs(place) else settings


def _is_hdfs(place: str) -> bool:
    return place.startswith("hdfs://")

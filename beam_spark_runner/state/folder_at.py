"""Chooses the kind of folder, HDFS or object store, by its URL."""

from beam_spark_runner.state.hdfs_folder import HdfsFolder, with_user
from beam_spark_runner.state.object_folder import ObjectFolder
from beam_spark_runner.state.url_folder import UrlFolder


def folder_at(
    url: str, settings: tuple[tuple[str, str], ...] = (), scratch: str | None = None
) -> UrlFolder:
    """Return a folder of HDFS or of an object store; see ``UrlFolder`` for the arguments."""
    kind = HdfsFolder if _is_hdfs(url) else ObjectFolder
    return kind(url, settings, scratch)


def settings_of_tasks(
    url: str, settings: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Return settings with which tasks access the folder as this process's user."""
    return with_user(settings) if _is_hdfs(url) else settings


def _is_hdfs(url: str) -> bool:
    return url.startswith("hdfs://")

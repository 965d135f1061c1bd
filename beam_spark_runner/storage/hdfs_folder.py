"""A folder of HDFS, through WebHDFS.

A file of HDFS can be read while it is being written. So it is written under a temporary name, and
renamed when it is complete. The namenode refuses this if the final name exists.
"""

import contextlib
import functools
import getpass
import io
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, BinaryIO, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.storage.folder import Settings, UrlFolder
from beam_spark_runner.storage.webhdfs import WebHdfs
from beam_spark_runner.storage.webhdfs_http import HdfsError, NewAuth

# Of the namenode's web address, since Hadoop 3.
_PORT = "9870"
_SECURE_PORT = "9871"


@dataclass(frozen=True, slots=True)
class HdfsFolder(UrlFolder):
    """See ``UrlFolder``.

    Settings: "hdfs_host" (by default that of the URL; several namenodes are separated by commas),
    "hdfs_port", "hdfs_user", "hdfs_https" and "hdfs_kerberos"; the last two are "true" or missing.
    With Kerberos, "hdfs_user" has no effect. The port of the URL is for Hadoop's own protocol.
    """

    two_may_create: ClassVar[str] = "renames a file to a name that another one has"

    @override
    def make(self) -> None:
        with _doing("make it"):
            self._files.make_folder(self._path())

    @override
    def exists(self) -> bool:
        with _doing("look for it"):
            status = self._files.status(self._path())
        return status is not None and status["type"] == "DIRECTORY"

    @override
    def put_content(self, name: str, content: BinaryIO) -> None:
        """An existing file is not replaced."""
        self._create(name, content)

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        return self._create(name, io.BytesIO(data))

    @override
    def read(self, name: str) -> bytes:
        content = io.BytesIO()
        self._download(name, content)
        return content.getvalue()

    @override
    def names(self) -> Sequence[str]:
        """Names of incomplete files begin with a dot."""
        with _doing("list it"):
            return self._files.files(self._path())

    @override
    def folders(self) -> Sequence[str]:
        with _doing("list it"):
            return self._files.folders(self._path())

    @override
    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with _doing(f"delete {name}"):
                self._files.delete(self._path(name))

    @override
    def remove(self) -> None:
        with _doing("delete it"):
            self._files.delete(self._path(), recursive=True)

    @override
    def _download(self, name: str, target: IO[bytes]) -> None:
        with _doing(f"read {name}"):
            self._files.read(self._path(name), target)

    def _create(self, name: str, content: BinaryIO) -> bool:
        hidden = self._path(f".{name}.{secrets.token_hex(4)}")
        with _doing(f"create {name}"):
            is_new = False
            try:
                self._files.write(hidden, content)
                is_new = self._files.rename(hidden, self._path(name))
            finally:
                if not is_new:
                    with contextlib.suppress(OSError):  # a later start deletes it then
                        self._files.delete(hidden)
        return is_new

    @property
    def _files(self) -> WebHdfs:
        return _client(self.url, self.settings)

    def _path(self, name: str = "") -> str:
        # Not ``urlsplit``: a path may contain "?" and "#".
        folder = "/" + self.url.partition("://")[2].partition("/")[2]
        return f"{folder}/{name}" if name else folder


def with_user(settings: Settings) -> Settings:
    """Return settings with "hdfs_user": this process's user, unless one is given.

    Tasks may run as another user of the system. With Kerberos, the ticket names the user.
    """
    by_name = dict(settings)
    if by_name.get("hdfs_user") or by_name.get("hdfs_kerberos"):
        return settings
    return (*settings, ("hdfs_user", _own_user()))


@functools.lru_cache(16)
def _client(url: str, settings: Settings) -> WebHdfs:
    """Return the client for a folder. It is cached, because it knows the active namenode.

    Raises:
        OptionsError: A setting is missing or wrong.
    """
    by_name = dict(settings)
    host_list = by_name.get("hdfs_host") or urlsplit(url).hostname
    if not host_list:
        raise OptionsError("hdfs_host", f"must be given, since {url} has no host")
    hosts = [host.strip() for host in host_list.split(",")]
    if any(not host or set(host) & set("/:") for host in hosts):
        raise OptionsError(
            "hdfs_host",
            "must be the name of a host, or names of namenodes separated by commas, not "
            f"{host_list}; the port is --hdfs_port",
        )
    is_secure = "hdfs_https" in by_name
    port = by_name.get("hdfs_port") or (_SECURE_PORT if is_secure else _PORT)
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise OptionsError("hdfs_port", f"must be the number of a port, not {port}")
    if "hdfs_kerberos" in by_name:
        return WebHdfs(hosts, int(port), "", is_secure=is_secure, new_auth=_kerberos())
    user = by_name.get("hdfs_user") or _own_user()
    return WebHdfs(hosts, int(port), user, is_secure=is_secure)


def _kerberos() -> NewAuth:
    try:
        from beam_spark_runner.storage.kerberos import Ticket
    except ImportError as error:
        raise OptionsError(
            "hdfs_kerberos",
            "needs libraries: pip install 'beam-spark-runner[kerberos]', also for the executors' "
            f"Python ({error})",
        ) from error
    return Ticket


def _own_user() -> str:
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError) as error:  # OSError since Python 3.13
        raise OptionsError(
            "hdfs_user", "must be given, since the user of this process has no name"
        ) from error


@contextlib.contextmanager
def _doing(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"could not {what}: {error}") from error
    except HdfsError as error:
        raise HdfsError(f"could not {what}: {error}") from error

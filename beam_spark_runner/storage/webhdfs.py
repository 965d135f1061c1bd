"""A client of WebHDFS, which is HDFS over HTTP, with the requests that checkpoints need.

Namenodes know the names of files, and one of them is active. Content is read and written at
datanodes, to which a namenode redirects.

Source: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO
from urllib.parse import quote, urlencode

from requests import Response

from beam_spark_runner.storage.webhdfs_http import (
    HdfsError,
    HdfsHttp,
    NewAuth,
    SilentError,
    TokenError,
    UnreachedError,
    body,
    pieces,
)

# Tries: a namenode may redirect to a datanode that has just died, and then to another one.
_DATANODES = 3
# By default, namenodes accept a token for a day.
_TOKEN_S = 3600.0
_OF_NAMENODE = (
    "--hdfs_host and --hdfs_port are the namenode's web address (dfs.namenode.http-address, by "
    "default port 9870; with --hdfs_https dfs.namenode.https-address, by default port 9871)"
)
_OF_DATANODE = (
    "this is the address of a datanode that the namenode reports; this machine must be able to "
    "reach it"
)


class WebHdfs:
    """Sends requests to one HDFS.

    All paths are absolute. All methods raise ``HdfsError`` if HDFS does not answer or refuses
    a request.

    Args:
        hosts: The hosts of namenodes, or of one HttpFS server.
        port: The port of their web address.
        user: The user who sends the requests, which HDFS does not verify.
        is_secure: Whether HDFS is accessed over HTTPS.
        new_auth: Returns what authenticates a request for a token, which other requests carry in
            place of a user. Without a token, a namenode makes and stores one for each redirection.

    Threads: any.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        port: int,
        user: str,
        *,
        is_secure: bool = False,
        new_auth: NewAuth | None = None,
    ) -> None:
        self._hosts, self._port = tuple(hosts), port
        self._user, self._new_auth = user, new_auth
        self._http = HdfsHttp(is_secure=is_secure)
        self._token = "", -math.inf  # and the time at which it is replaced
        self._active = 0  # the host that answered last; other threads may change it at any time

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, if they are missing."""
        with self._request("PUT", "MKDIRS", path) as answer:
            if not _json(answer).get("boolean"):
                raise HdfsError(f"could not make {path}")

    def status(self, path: str) -> Mapping[str, Any] | None:
        """Return the ``FileStatus`` of a file or folder; None: there is none."""
        try:
            with self._request("GET", "GETFILESTATUS", path) as answer:
                status: Mapping[str, Any] = _json(answer)["FileStatus"]
        except FileNotFoundError:
            return None
        return status

    def files(self, path: str) -> list[str]:
        """Return the names of all files in a folder.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        return self._names(path, "FILE")

    def folders(self, path: str) -> list[str]:
        """Return the names of all folders in a folder.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        return self._names(path, "DIRECTORY")

    def _names(self, path: str, kind: str) -> list[str]:
        with self._request("GET", "LISTSTATUS", path) as answer:
            entries = _json(answer)["FileStatuses"]["FileStatus"]
        return [entry["pathSuffix"] for entry in entries if entry["type"] == kind]

    def read(self, path: str, target: IO[bytes]) -> None:
        """Write the content of a file to a local one.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The local one cannot be written.
        """
        with self._stream(path) as answer:
            for piece in pieces(answer, path):
                target.write(piece)

    def write(self, path: str, content: BinaryIO) -> None:
        """Write a new file, in a folder that exists. It is on the disks of datanodes afterwards.

        The file is visible while it grows. After an error, a part of it may remain.

        Args:
            path: The path of the file.
            content: The seekable content, read from its current position to its end.
        """
        start = content.tell()
        size = content.seek(0, os.SEEK_END) - start
        for retries in reversed(range(_DATANODES)):
            with self._request(
                "PUT",
                "CREATE",
                path,
                overwrite="false",
                createparent="false",
                createflag="CREATE,SYNC_BLOCK",
            ) as answer:
                datanode = _redirection(answer)
            content.seek(start)
            try:
                with self._http.answer("PUT", datanode, _OF_DATANODE, content if size else None):
                    break
            except UnreachedError:
                if not retries:
                    raise
        # A datanode may report success although it could not close the file.
        status = self.status(path)
        if status is None or status["length"] != size:
            amount = "nothing" if status is None else f"{status['length']} bytes"
            raise HdfsError(f"of {size} bytes, {amount} arrived at {path}")

    def rename(self, path: str, to: str) -> bool:
        """Rename a file; return False if there is one of the new name.

        Raises:
            FileNotFoundError: There is no such file.
        """
        try:
            with self._request(
                "PUT", "RENAME", path, destination=to, renameoptions="NONE"
            ) as answer:
                content = body(answer)
        except FileExistsError:
            return False
        # Only a server that does not know ``renameoptions`` answers whether it renamed the file.
        if not content or _parse(content).get("boolean"):
            return True
        if self.status(to) is None:
            raise HdfsError(f"could not rename {path} to {to}")
        return False

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or folder. It is not an error if it does not exist.

        Args:
            path: The path.
            recursive: Whether a folder is deleted with its content; else it must be empty.
        """
        with self._request("DELETE", "DELETE", path, recursive=str(recursive).lower()):
            pass

    @contextlib.contextmanager
    def _stream(self, path: str) -> Iterator[Response]:
        """Request the content of a file; a datanode answers, or HttpFS itself."""
        for retries in reversed(range(_DATANODES)):
            with self._request("GET", "OPEN", path) as answer:
                if answer.status_code == 200:
                    yield answer
                    return
                datanode = _redirection(answer)
            with contextlib.ExitStack() as stack:
                try:
                    answer = stack.enter_context(self._http.answer("GET", datanode, _OF_DATANODE))
                except UnreachedError:
                    if retries:
                        continue
                    raise
                yield answer
                return

    @contextlib.contextmanager
    def _request(self, method: str, op: str, path: str, **parameters: str) -> Iterator[Response]:
        """Send a request to a namenode, with a new token if it does not accept the present one."""
        with contextlib.ExitStack() as stack:
            for is_last in (False, True):
                query = {"op": op, **self._identity(), **parameters}
                try:
                    answer = stack.enter_context(self._request_active(method, path, query))
                    break
                except TokenError:
                    if is_last:
                        raise
                    self._token = "", -math.inf
            yield answer

    def _identity(self) -> Mapping[str, str]:
        """Return the parameter that says whose request it is."""
        if self._new_auth is None:
            return {"user.name": self._user}
        token, until = self._token
        if time.monotonic() >= until:
            query = {"op": "GETDELEGATIONTOKEN"}
            with self._request_active("GET", "/", query, self._new_auth) as answer:
                token = _json(answer)["Token"]["urlString"]
            self._token = token, time.monotonic() + _TOKEN_S
        return {"delegation": token}

    @contextlib.contextmanager
    def _request_active(
        self, method: str, path: str, query: Mapping[str, str], new_auth: NewAuth | None = None
    ) -> Iterator[Response]:
        """Send a request to the active namenode; if it cannot be reached, to the next one."""
        target = f"/webhdfs/v1{quote(path)}?{urlencode(query, quote_via=quote)}"
        first, count = self._active, len(self._hosts)
        with contextlib.ExitStack() as stack:
            for turn in range(count):
                index = (first + turn) % count
                server = f"{self._http.scheme}://{self._hosts[index]}:{self._port}"
                auth = new_auth() if new_auth else None
                try:
                    answer = stack.enter_context(
                        self._http.answer(method, server + target, _OF_NAMENODE, auth=auth)
                    )
                except UnreachedError:
                    if turn + 1 == count:
                        raise
                except SilentError:
                    # This namenode may hang while another one has become active. Only a GET may
                    # be repeated here; if the caller repeats others, the next namenode gets them.
                    self._active = (index + 1) % count
                    if method != "GET" or turn + 1 == count:
                        raise
                else:
                    break
            self._active = index
            yield answer


def _redirection(answer: Response) -> str:
    """Return the URL of the datanode to which an answer redirects."""
    url = answer.headers.get("Location")
    if url is None:
        raise HdfsError(
            f"the namenode did not redirect to a datanode, but answered {answer.status_code}"
        )
    return url


def _json(answer: Response) -> Any:
    return _parse(body(answer))


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise HdfsError(f"an answer is not that of WebHDFS; {_OF_NAMENODE}") from error

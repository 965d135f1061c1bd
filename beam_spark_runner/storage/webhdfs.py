"""A client of WebHDFS, which is HDFS over HTTP, with the requests that checkpoints need.

Namenodes know the names of files, and one of them is active. Content is read and written at
datanodes, to which a namenode redirects. Each request opens a new connection: if a reused one was
found closed, it would be uncertain whether, say, a file was renamed.

Source: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    RemoteDisconnected,
)
from typing import IO, Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

_PIECE_BYTES = 1 << 20
_CONNECT_S = 10.0
_ANSWER_S = 60.0
# Tries: a namenode may redirect to a datanode that has just died, and then to another one.
_DATANODES = 3
_OF_NAMENODE = (
    "--hdfs_host and --hdfs_port are the namenode's web address (dfs.namenode.http-address, by "
    "default port 9870)"
)
_OF_DATANODE = (
    "this is the address of a datanode that the namenode reports; this machine must be able to "
    "reach it"
)


class HdfsError(OSError):
    """HDFS cannot be reached, or refuses a request."""


class _SilentError(HdfsError):
    """A server received a request and did not answer: it may have executed it."""


class _UnreachedError(HdfsError):
    """The request was not executed, so that it can be sent to another server."""


class WebHdfs:
    """Sends requests to one HDFS.

    All paths are absolute. All methods raise ``HdfsError`` if HDFS does not answer or refuses
    a request.

    Args:
        hosts: The hosts of namenodes, or of one HttpFS server.
        port: The port of their web address.
        user: The user who sends the requests. HDFS does not verify it.

    Threads: any.
    """

    def __init__(self, hosts: Sequence[str], port: int, user: str) -> None:
        self._hosts, self._port, self._user = tuple(hosts), port, user
        self._active = 0  # the host that answered last; other threads may change it at any time

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, if they are missing."""
        with self._asked("PUT", "MKDIRS", path) as answer:
            if not _json(answer).get("boolean"):
                raise HdfsError(f"could not make {path}")

    def status(self, path: str) -> Mapping[str, Any] | None:
        """Return the ``FileStatus`` of a file or folder; None: there is none."""
        try:
            with self._asked("GET", "GETFILESTATUS", path) as answer:
                found: Mapping[str, Any] = _json(answer)["FileStatus"]
        except FileNotFoundError:
            return None
        return found

    def files(self, path: str) -> list[str]:
        """Return the names of all files in a folder.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        with self._asked("GET", "LISTSTATUS", path) as answer:
            found = _json(answer)["FileStatuses"]["FileStatus"]
        return [each["pathSuffix"] for each in found if each["type"] == "FILE"]

    def read(self, path: str, target: IO[bytes]) -> None:
        """Write the content of a file to a local one.

        Raises:
            FileNotFoundError: There is no such file.
            OSError: The local one cannot be written.
        """
        with self._opened(path) as answer:
            length, read = answer.getheader("Content-Length"), 0
            while piece := _piece(answer):
                target.write(piece)
                read += len(piece)
        # If an answer breaks off, ``http.client`` returns what was received.
        if length is not None and int(length) != read:
            raise HdfsError(f"{read} of {length} bytes were received of {path}")

    def write(self, path: str, content: BinaryIO) -> None:
        """Write a new file, in a folder that exists. It is on the disks of datanodes afterwards.

        The file is visible while it grows. After an error, a part of it may remain.

        Args:
            path: The path of the file.
            content: The seekable content, read from its current position to its end.
        """
        start = content.tell()
        size = content.seek(0, os.SEEK_END) - start
        for left in reversed(range(_DATANODES)):
            with self._asked(
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
                with _answer("PUT", datanode, _OF_DATANODE, content, size):
                    break
            except _UnreachedError:
                if not left:
                    raise
        # A datanode may report success although it could not close the file.
        status = self.status(path)
        if status is None or status["length"] != size:
            there = "nothing" if status is None else f"{status['length']} bytes"
            raise HdfsError(f"of {size} bytes, {there} arrived at {path}")

    def rename(self, path: str, to: str) -> bool:
        """Rename a file; return False if there is one of the new name.

        Raises:
            FileNotFoundError: There is no such file.
        """
        try:
            with self._asked("PUT", "RENAME", path, destination=to, renameoptions="NONE") as answer:
                said = _body(answer)
        except FileExistsError:
            return False
        # Only a server that does not know ``renameoptions`` answers whether it renamed the file.
        if not said or _parsed(said).get("boolean"):
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
        with self._asked("DELETE", "DELETE", path, recursive=str(recursive).lower()):
            pass

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[HTTPResponse]:
        """Request the content of a file; a datanode answers, or HttpFS itself."""
        for left in reversed(range(_DATANODES)):
            with self._asked("GET", "OPEN", path) as answer:
                if answer.status == 200:
                    yield answer
                    return
                datanode = _redirection(answer)
            with contextlib.ExitStack() as stack:
                try:
                    answer = stack.enter_context(_answer("GET", datanode, _OF_DATANODE))
                except _UnreachedError:
                    if left:
                        continue
                    raise
                yield answer
                return

    @contextlib.contextmanager
    def _asked(self, method: str, op: str, path: str, **parameters: str) -> Iterator[HTTPResponse]:
        """Send a request to the active namenode; if it cannot be reached, to the next one."""
        query = urlencode({"op": op, "user.name": self._user, **parameters}, quote_via=quote)
        first, count = self._active, len(self._hosts)
        with contextlib.ExitStack() as stack:
            for turn in range(count):
                which = (first + turn) % count
                url = f"http://{self._hosts[which]}:{self._port}/webhdfs/v1{quote(path)}?{query}"
                try:
                    answer = stack.enter_context(_answer(method, url, _OF_NAMENODE))
                except _UnreachedError:
                    if turn + 1 == count:
                        raise
                except _SilentError:
                    # This namenode may hang while another one has become active. Only a GET may
                    # be repeated here; if the caller repeats others, the next namenode gets them.
                    self._active = (which + 1) % count
                    if method != "GET" or turn + 1 == count:
                        raise
                else:
                    break
            self._active = which
            yield answer


@contextlib.contextmanager
def _answer(
    method: str, url: str, hint: str, body: BinaryIO | None = None, size: int = 0
) -> Iterator[HTTPResponse]:
    """Send a request, and yield its answer, which is closed when the context ends.

    Args:
        method: The HTTP method.
        url: The URL of the request.
        hint: A hint for error messages: what to check if nothing answers at the URL.
        body: The content to send, read from its current position to its end.
        size: The bytes of the body.

    Raises:
        FileNotFoundError: HDFS answers that there is no such file or folder.
        FileExistsError: HDFS answers that the file exists.
        HdfsError: HDFS does not answer, or refuses the request for another reason.
    """
    to = urlsplit(url)
    if to.scheme != "http" or to.hostname is None:
        raise HdfsError(f"{to.scheme}://{to.netloc} is not supported, only http://")
    connection = HTTPConnection(to.hostname, to.port, timeout=_CONNECT_S, blocksize=_PIECE_BYTES)
    with contextlib.closing(connection):
        try:
            connection.connect()
        except OSError as error:
            raise _UnreachedError(f"could not reach {to.netloc}: {error}; {hint}") from error
        connection.sock.settimeout(_ANSWER_S)
        headers = {"Connection": "close"}
        if method == "PUT":
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        try:
            # A server that refuses the content answers before it has read all of it.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, f"{to.path}?{to.query}", body, headers)
            response = connection.getresponse()
        except RemoteDisconnected as error:
            raise _SilentError(f"{to.netloc} did not answer; {hint}") from error
        except BadStatusLine as error:  # its text would be bytes of another protocol
            raise HdfsError(f"what answers at {to.netloc} does not speak HTTP; {hint}") from error
        except (OSError, HTTPException) as error:
            raise _SilentError(f"{to.netloc} did not answer: {_said(error)}; {hint}") from error
        if response.status >= 400:
            raise _refusal(to.netloc, response, hint)
        with response:
            yield response


def _refusal(server: str, response: HTTPResponse, hint: str) -> OSError:
    """Return the error for an answer with an error status."""
    try:
        refused = json.loads(_body(response))["RemoteException"]
        kind, message = str(refused["exception"]), str(refused["message"])
    except (ValueError, KeyError, TypeError):
        if "Negotiate" in response.headers.get("WWW-Authenticate", ""):
            return HdfsError(f"{server} demands Kerberos, which is not supported")
        return HdfsError(
            f"what answers at {server} is not WebHDFS ({response.status} {response.reason}); {hint}"
        )
    message = message.partition("\n")[0]  # a stack trace follows
    if kind == "FileNotFoundException":
        return FileNotFoundError(message)
    if kind == "FileAlreadyExistsException":
        return FileExistsError(message)
    if kind == "StandbyException":
        return _UnreachedError(f"{server} is a namenode that is not active")
    if kind == "SafeModeException" or "is in safe mode" in message:
        return HdfsError(
            f"the namenode is in safe mode, in which nothing can be changed: {message}"
        )
    if kind in ("AccessControlException", "SecurityException"):
        return HdfsError(f"HDFS refuses it to this user (see --hdfs_user): {message}")
    return HdfsError(f"HDFS refuses it: {message} ({kind})")


def _redirection(answer: HTTPResponse) -> str:
    """Return the URL of the datanode to which an answer redirects."""
    url = answer.getheader("Location")
    if url is None:
        raise HdfsError(
            f"the namenode did not redirect to a datanode, but answered {answer.status}"
        )
    return url


def _json(answer: HTTPResponse) -> Any:
    return _parsed(_body(answer))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise HdfsError(f"an answer is not that of WebHDFS; {_OF_NAMENODE}") from error


def _body(answer: HTTPResponse) -> bytes:
    try:
        return answer.read()
    except (OSError, HTTPException) as error:
        raise HdfsError(f"an answer broke off: {_said(error)}") from error


def _piece(answer: HTTPResponse) -> bytes:
    try:
        return answer.read(_PIECE_BYTES)
    except (OSError, HTTPException) as error:
        raise HdfsError(f"an answer broke off: {_said(error)}") from error


def _said(error: Exception) -> str:
    """Return the name and text of an error; some errors of ``http.client`` have no text."""
    return f"{type(error).__name__}: {error}"

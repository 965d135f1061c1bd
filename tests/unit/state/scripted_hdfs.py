"""A server that answers as WebHDFS does, and wrongly where a test wants it to.

What HDFS itself does is tested with HDFS (``integration/test_hdfs.py``); here are answers that it
gives rarely: broken off, of a namenode that is not active, with a datanode that is gone.
"""

import collections
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

FOLDER = "/a folder/of 100%"
Answer: TypeAlias = "Callable[[_Request], None]"


class ScriptedHdfs:
    """A namenode and a datanode at one port.

    Args:
        tls: with the certificate for HTTPS; None: HTTP.

    Attributes:
        port: of both.
        url: that of the server.
        files: by their paths.
        folders: their paths.
        wrong: answers in place of the right ones, by operation; each is given once. "WRITE" is
            that of the datanode, "READ" too.
        asked: the operations, in order.
        users: whom requests have named; None: nobody.
        credentials: what requests have been authenticated with, by operation.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.folders = {FOLDER}
        self.wrong = collections.defaultdict[str, list[Answer]](list)
        self.asked: list[str] = []
        self.users: set[str | None] = set()
        self.credentials: dict[str, str | None] = {}
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Request)
        self._server.script = self  # type: ignore[attr-defined]
        self.port: int = self._server.server_address[1]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def serving(self) -> "Iterator[ScriptedHdfs]":
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class _Request(BaseHTTPRequestHandler):
    @property
    def script(self) -> ScriptedHdfs:
        found: ScriptedHdfs = self.server.script  # type: ignore[attr-defined]
        return found

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None: ...

    def _serve(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.at = unquote(url.path).removeprefix("/webhdfs/v1")
        self.op = self.query["op"]
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.script.lock:
            self.script.asked.append(self.op)
            self.script.users.add(self.query.get("user.name"))
            token = self.query.get("delegation")
            self.script.credentials[self.op] = token or self.headers["Authorization"]
            wrong = self.script.wrong[self.op]
            answer = wrong.pop(0) if wrong else right
            answer(self)

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, kind: str, message: str) -> None:
        refused = {"exception": kind, "javaClassName": f"org.apache.{kind}", "message": message}
        self.say(status, json.dumps({"RemoteException": refused}).encode())


def right(request: _Request) -> None:
    """Answer as HDFS does."""
    files, folders, at = request.script.files, request.script.folders, request.at
    match request.op:
        case "GETDELEGATIONTOKEN":
            token = f"T{request.script.asked.count(request.op)}"
            request.say(200, json.dumps({"Token": {"urlString": token}}).encode())
        case "MKDIRS":
            folders.add(at)
            request.say(200, b'{"boolean": true}')
        case "GETFILESTATUS" if at in files:
            status = {"type": "FILE", "length": len(files[at])}
            request.say(200, json.dumps({"FileStatus": status}).encode())
        case "GETFILESTATUS" if at in folders:
            request.say(200, b'{"FileStatus": {"type": "DIRECTORY", "length": 0}}')
        case "LISTSTATUS" if at in folders:
            found = [path.removeprefix(f"{at}/") for path in files if path.startswith(f"{at}/")]
            all_status = [{"pathSuffix": name, "type": "FILE"} for name in found if "/" not in name]
            all_status.append({"pathSuffix": "below", "type": "DIRECTORY"})
            listed = {"FileStatuses": {"FileStatus": all_status}}
            request.say(200, json.dumps(listed).encode())
        case "CREATE" | "OPEN":
            leads_to(request.script.url)(request)
        case "WRITE" if at.rpartition("/")[0] not in folders:
            request.refuse(404, "FileNotFoundException", "Parent directory doesn't exist")
        case "WRITE":
            files[at] = request.body
            request.say(201)
        case "READ" if at in files:
            request.say(200, files[at])
        case "RENAME" if request.query["destination"] in files:
            assert request.query["renameoptions"] == "NONE"
            request.refuse(403, "FileAlreadyExistsException", "rename destination already exists")
        case "RENAME" if at in files:
            files[request.query["destination"]] = files.pop(at)
            request.say(200)
        case "DELETE":
            request.say(200, json.dumps({"boolean": files.pop(at, None) is not None}).encode())
        case _:
            request.refuse(404, "FileNotFoundException", f"File does not exist: {at}\n\tat org")


def refuses(status: int, kind: str, message: str) -> Answer:
    return lambda request: request.refuse(status, kind, message)


def says(status: int, body: bytes = b"", **headers: str) -> Answer:
    return lambda request: request.say(status, body, **headers)


def leads_to(server: str) -> Answer:
    """Redirect to the URL of a datanode, which may have ended."""

    def answer(request: _Request) -> None:
        op = {"CREATE": "WRITE", "OPEN": "READ"}[request.op]
        path = request.path.replace(f"op={request.op}", f"op={op}")
        request.say(307, Location=f"{server}{path}")

    return answer


def hangs_up(request: _Request) -> None:
    """Close the connection without an answer."""
    request.connection.shutdown(socket.SHUT_RDWR)


def speaks_another_protocol(request: _Request) -> None:
    request.wfile.write(b"\0\0\0|{\x08\xff Server IPC version 9\n")


def does_it_and_hangs_up(request: _Request) -> None:
    """Do as HDFS does, but let the answer be lost."""
    request.say = lambda *_, **__: hangs_up(request)  # type: ignore[method-assign]
    right(request)


def breaks_off(request: _Request) -> None:
    """Send a half of a file."""
    content = request.script.files[request.at]
    request.send_response(200)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content[: len(content) // 2])


def loses_half(request: _Request) -> None:
    """Store a half of a file, and say that all is well."""
    request.script.files[request.at] = request.body[: len(request.body) // 2]
    request.say(201)


def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port

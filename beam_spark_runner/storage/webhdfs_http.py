"""One HTTP request to a server of HDFS, and its answer.

Its errors say whether a server may have executed the request.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from http.client import BadStatusLine, RemoteDisconnected
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import SplitResult, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import InvalidURL, RequestException, SSLError
from typing_extensions import override
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from beam_spark_runner.core.rendering import first_line_of

PIECE_BYTES = 1 << 20
"""How much of a file is sent or received at a time."""
_CONNECT_S = 10.0
_ANSWER_S = 60.0
# Without the first one, the length of an answer might not be that of the content.
_HEADERS = {"Accept-Encoding": "identity", "Connection": "close"}
# Variables with a file or folder of certificates, which ``requests`` and OpenSSL know.
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
NewAuth: TypeAlias = Callable[[], AuthBase]
"""Returns what authenticates one request."""


class HdfsError(OSError):
    """HDFS cannot be reached, or refuses a request."""


class SilentError(HdfsError):
    """A server received a request and did not answer: it may have executed it."""


class TokenError(HdfsError):
    """The request was not executed, because its delegation token is not valid, or no longer."""


class UnreachedError(HdfsError):
    """The request was not executed, so that it can be sent to another server."""


class HdfsHttp:
    """Sends requests, each over a new connection.

    If a reused connection was found closed, it would be uncertain whether, say, a file was
    renamed. Proxies and passwords (``.netrc``) of the environment are not used.

    Args:
        is_secure: Whether servers must speak HTTPS, with the certificate of a CA that is trusted.

    Threads: any.
    """

    def __init__(self, *, is_secure: bool) -> None:
        self.scheme = "https" if is_secure else "http"

    @contextlib.contextmanager
    def answer(
        self,
        method: str,
        url: str,
        hint: str,
        content: BinaryIO | None = None,
        auth: AuthBase | None = None,
    ) -> Iterator[requests.Response]:
        """Send a request, and yield its answer, which is closed when the context ends.

        Args:
            method: The HTTP method.
            url: The URL of the request.
            hint: A hint for error messages: what to check if nothing answers at the URL.
            content: What to send, read from its current position to its end.
            auth: Authenticates the request, and perhaps the server.

        Raises:
            FileNotFoundError: HDFS answers that there is no such file or folder.
            FileExistsError: HDFS answers that the file exists.
            HdfsError: HDFS does not answer, or refuses the request for another reason.
        """
        to = urlsplit(url)
        if to.scheme != self.scheme or to.hostname is None:
            raise HdfsError(
                f"{to.scheme}://{to.netloc} is not supported, only {self.scheme}:// (see "
                "--hdfs_https)"
            )
        with requests.Session() as session:
            session.trust_env = False
            session.mount(f"{self.scheme}://", _Adapter())
            with self._send(session, method, to, hint, content, auth) as response:
                if response.status_code >= 400:
                    raise _refusal(to.netloc, response, hint, has_ticket=auth is not None)
                yield response

    def _send(
        self,
        session: requests.Session,
        method: str,
        to: SplitResult,
        hint: str,
        content: BinaryIO | None,
        auth: AuthBase | None,
    ) -> requests.Response:
        headers = dict(_HEADERS)
        if method == "PUT":
            headers["Content-Type"] = "application/octet-stream"
        try:
            return session.request(
                method,
                to.geturl(),
                headers=headers,
                data=content,
                auth=auth,
                timeout=(_CONNECT_S, _ANSWER_S),
                verify=_authorities() if self.scheme == "https" else None,
                allow_redirects=False,
                stream=True,
            )
        except (RequestException, HTTPError) as error:
            # Texts of the others have the URL, and that the token.
            raise _error(error, to.netloc, hint) from _wrapped(error)[-1]


def body(answer: requests.Response) -> bytes:
    """Return the whole body of an answer.

    Raises:
        HdfsError: The answer breaks off.
    """
    try:
        return answer.content
    except (RequestException, HTTPError) as error:
        raise HdfsError(f"an answer broke off: {_text_of(_wrapped(error)[-1])}") from error


def pieces(answer: requests.Response, path: str) -> Iterator[bytes]:
    """Yield the content of a file from an answer.

    Args:
        answer: The answer.
        path: The path of the file, for error messages.

    Raises:
        HdfsError: The answer breaks off.
    """
    read, length = 0, answer.headers.get("Content-Length", "an unknown number of")
    try:
        while piece := answer.raw.read(PIECE_BYTES):
            read += len(piece)
            yield piece
    except HTTPError as error:
        what = f"{read} of {length} bytes were received of {path}"
        raise HdfsError(f"{what}: {_text_of(_wrapped(error)[-1])}") from error


class _Patient:
    """A connection for which the timeout of an answer applies as soon as it is established.

    Of a new connection, ``urllib3`` would send the content with the timeout for connecting.
    """

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock.settimeout(_ANSWER_S)


class _Connection(_Patient, HTTPConnection): ...


class _TlsConnection(_Patient, HTTPSConnection): ...


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    @override
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, blocksize=PIECE_BYTES, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


def _authorities() -> str | bool:
    """Return the file or folder of the CAs that are trusted; True: those that ``certifi`` has.

    Raises:
        HdfsError: The environment has the path of a file that does not exist.
    """
    for name in _CA_VARIABLES:
        if path := os.environ.get(name):
            if not os.path.exists(path):
                raise HdfsError(f"the certificates are missing: {name} is {path}")
            return path
    return True


def _refusal(server: str, response: requests.Response, hint: str, *, has_ticket: bool) -> OSError:
    """Return the error for an answer with an error status."""
    try:
        refused = json.loads(body(response))["RemoteException"]
        kind, message = str(refused["exception"]), str(refused["message"])
    except (ValueError, KeyError, TypeError):
        if "Negotiate" not in response.headers.get("WWW-Authenticate", ""):
            status = f"{response.status_code} {response.reason}"
            return HdfsError(f"what answers at {server} is not WebHDFS ({status}); {hint}")
        if has_ticket:
            return HdfsError(f"{server} does not accept the Kerberos ticket")
        return HdfsError(f"{server} demands Kerberos (see --hdfs_kerberos)")
    message = first_line_of(message)  # a stack trace follows
    if kind == "FileNotFoundException":
        return FileNotFoundError(message)
    if kind == "FileAlreadyExistsException":
        return FileExistsError(message)
    if kind == "StandbyException":
        return UnreachedError(f"{server} is a namenode that is not active")
    if "InvalidToken" in (kind + message):
        return TokenError(f"{server} does not accept its token: {message}")
    if kind == "SafeModeException" or "is in safe mode" in message:
        return HdfsError(
            f"the namenode is in safe mode, in which nothing can be changed: {message}"
        )
    if kind in ("AccessControlException", "SecurityException"):
        return HdfsError(f"HDFS refuses it to this user (see --hdfs_user): {message}")
    return HdfsError(f"HDFS refuses it: {message} ({kind})")


def _error(error: Exception, server: str, hint: str) -> HdfsError:
    """Return the error for a request that has no answer."""
    wrapped = _wrapped(error)
    cause = wrapped[-1]
    if any(isinstance(inner, (ConnectTimeoutError, NewConnectionError)) for inner in wrapped):
        return UnreachedError(f"could not reach {server}: {cause}; {hint}")
    if isinstance(error, InvalidURL):
        return UnreachedError(f"{server} is no address: {error}; {hint}")
    if isinstance(error, SSLError):
        variables = " or ".join(_CA_VARIABLES)
        return HdfsError(
            f"no TLS connection to {server} (see --hdfs_https): {cause}; {variables} in the "
            f"environment is a file with the certificates of CAs; {hint}"
        )
    if isinstance(cause, RemoteDisconnected):
        return SilentError(f"{server} did not answer; {hint}")
    if isinstance(cause, BadStatusLine):  # its text would be bytes of another protocol
        return HdfsError(f"what answers at {server} does not speak HTTP; {hint}")
    return SilentError(f"{server} did not answer: {_text_of(cause)}; {hint}")


def _wrapped(error: BaseException) -> list[BaseException]:
    """Return an error and those that ``requests`` and ``urllib3`` have wrapped in it."""
    chain = [error]
    while isinstance(error, (RequestException, HTTPError)):
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        chain.append(error := inner)
    return chain


def _text_of(error: BaseException) -> str:
    """Return the name and text of an error; some errors of ``http.client`` have no text."""
    return f"{type(error).__name__}: {error}"

"""TLS and token authentication between clients and the job server, for both sides."""

import collections
import contextlib
import functools
import hmac
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from typing_extensions import override

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.secret_files import read_secret
from beam_spark_runner.options.server_access import ClientAccess, ServerAccess

REFUSED_BY_US = ("beam-spark-runner", "refused")
"""Trailing metadata of each error status that a service of this package returns: gRPC itself, and
other job servers, use the same status codes."""
SPARK_UI_URL = "beam-spark-ui-url"
"""Trailing metadata of ``DescribePipelineOptions``: the URL of the Spark UI, where there is one."""
CONTINUES_STREAMS = ("beam-spark-continues-streams", "yes")
"""Trailing metadata of ``DescribePipelineOptions`` if the server has a ``--jobs_dir``."""
KEEPALIVE_TIMEOUT_MS = 60_000
"""The longest wait for the answer to a ping; a connection without an answer is regarded as lost."""
_CHANNEL_OPTIONS = [
    # A server whose machine is gone ends no call. Servers in Java and Go regard more than a ping in
    # five minutes as an attack, by default.
    ("grpc.keepalive_time_ms", 330_000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # A server that is started again is found soon; the default is two minutes.
    ("grpc.max_reconnect_backoff_ms", 5_000),
]
_HEADER = "authorization"  # RFC 6750
_TOKEN_OPTION = "client_token_file"
_OPEN_TO_ALL = "/grpc.health.v1.Health/Check"
"""Probes send no token. The answer is one word; ``Watch``, which occupies a call for as long as the
client likes, needs the token."""
_MIN_TOKEN = 16  # characters
_IS_MISSING = (
    "the job server demands a token with each call, in the metadata 'authorization: Bearer TOKEN'; "
    "with --runner=SparkPortableRunner, name the file that contains it as --job_server_token_file"
)
_IS_WRONG = (
    "the job server does not know the token in the metadata 'authorization: Bearer TOKEN'; it has "
    "to be the one in its --client_token_file, which clients with --runner=SparkPortableRunner "
    "name as --job_server_token_file"
)


def check_files(access: ServerAccess) -> None:
    """Check the TLS and token files of a server: gRPC does not report what is wrong with them.

    Raises:
        OptionsError: A file cannot be read, or is not a certificate, key or token.
    """
    if access.cert is not None and access.key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_pair(context, ("tls_cert", access.cert), ("tls_key", access.key))
        if access.ca is not None:
            _load_ca(context, "tls_ca", access.ca)
    if access.token_file is not None:
        read_token(_TOKEN_OPTION, access.token_file)


def server_credentials(access: ServerAccess) -> grpc.ServerCredentials | None:
    """Return the server's credentials, of files that ``check_files`` accepts; None: no TLS."""
    if access.cert is None or access.key is None:
        return None
    return grpc.ssl_server_credentials(
        [(Path(access.key).read_bytes(), Path(access.cert).read_bytes())],
        None if access.ca is None else Path(access.ca).read_bytes(),
        require_client_auth=access.ca is not None,
    )


def server_interceptors(access: ServerAccess) -> list[grpc.ServerInterceptor]:
    """Return the interceptors that check the token of each call; ``check_files`` comes first."""
    token = client_token(access)
    return [] if token is None else [_TokenCheck(token)]


def client_token(access: ServerAccess) -> str | None:
    """Return the token that clients must show, of a file that ``check_files`` accepts."""
    return None if access.token_file is None else read_token(_TOKEN_OPTION, access.token_file)


def open_channel(endpoint: str, access: ClientAccess) -> grpc.Channel:
    """Open a channel to a job server, which may not be running yet.

    Args:
        endpoint: HOST:PORT of the server.
        access: The client's certificate and token, and the CA of the server's certificate.

    Raises:
        OptionsError: A file is invalid.
    """
    interceptors = []
    if access.token_file is not None:
        interceptors.append(_TokenSender(read_token("job_server_token_file", access.token_file)))
    if access.ca is None:
        channel = grpc.insecure_channel(endpoint, _CHANNEL_OPTIONS)
    else:
        client_context(access)
        key = cert = None
        if access.cert is not None and access.key is not None:
            cert, key = Path(access.cert).read_bytes(), Path(access.key).read_bytes()
        credentials = grpc.ssl_channel_credentials(Path(access.ca).read_bytes(), key, cert)
        channel = grpc.secure_channel(endpoint, credentials, _CHANNEL_OPTIONS)
    return grpc.intercept_channel(channel, *interceptors)


def client_context(access: ClientAccess) -> ssl.SSLContext | None:
    """Return TLS as a client uses it; None: it uses none.

    Raises:
        OptionsError: A file is invalid.
    """
    if access.ca is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_ca(context, "job_server_ca", access.ca)
    if access.cert is not None and access.key is not None:
        _load_pair(context, ("job_server_cert", access.cert), ("job_server_key", access.key))
    return context


def read_token(option: str, path: str) -> str:
    """Read the token in a file.

    Args:
        option: The option that names the file, for errors.
        path: The path of the file.

    Raises:
        OptionsError: The file cannot be read, others can read it, or its content is not a token.
    """
    with _naming_file(option, path):
        token = read_secret(option, path).strip()
    if len(token) < _MIN_TOKEN or not all(0x20 < byte < 0x7F for byte in token):
        raise OptionsError(
            option,
            f"{path} must contain a token of at least {_MIN_TOKEN} printable characters of "
            "ASCII, without spaces, and nothing else",
        )
    return token.decode()


class _TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without the token as UNAUTHENTICATED."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()
        # A stream handler is called at once, without waiting for the client's first message.
        refuse = grpc.stream_stream_rpc_method_handler
        self._is_missing = refuse(functools.partial(_refuse, _IS_MISSING))
        self._is_wrong = refuse(functools.partial(_refuse, _IS_WRONG))

    @override
    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        if details.method == _OPEN_TO_ALL:
            return continuation(details)
        values = [value for name, value in details.invocation_metadata if name == _HEADER]
        if len(values) == 1 and hmac.compare_digest(values[0].encode(), self._expected):
            return continuation(details)
        return self._is_wrong if values else self._is_missing


def _refuse(reason: str, requests: Iterator[Any], context: Any) -> Iterator[Any]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
    yield


class _Details(
    collections.namedtuple(
        "_Details",
        ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression"),
    ),
    grpc.ClientCallDetails,  # type: ignore[misc]
):
    """The details of a call, with the token in its metadata."""


class _TokenSender(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Sends a token with each call, for the kinds of calls that Beam's Job API has."""

    def __init__(self, token: str) -> None:
        self._header = (_HEADER, f"Bearer {token}")

    @override
    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_token(details), request)

    @override
    def intercept_unary_stream(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_token(details), request)

    @override
    def intercept_stream_stream(self, call: Any, details: Any, requests: Any) -> Any:
        return call(self._with_token(details), requests)

    def _with_token(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), self._header],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )


def _load_pair(context: ssl.SSLContext, cert: tuple[str, str], key: tuple[str, str]) -> None:
    """Check that a certificate and a private key can be read, and belong together.

    Raises:
        OptionsError: They cannot, or others can read the key.
    """
    (option, path), (key_option, key_path) = cert, key
    with _naming_file(option, path), open(path, "rb"):
        pass
    with _naming_file(key_option, key_path):
        read_secret(key_option, key_path)
    try:
        # Without a password, Python would ask for one at the terminal.
        context.load_cert_chain(path, key_path, password=lambda: b"")
    except (OSError, ValueError) as error:
        reason = (
            getattr(error, "reason", None) or "the key is encrypted, or the file contains no key"
        )
        raise OptionsError(
            option, f"{path} and {key_path} are not a certificate and its key: {reason}"
        ) from error


def _load_ca(context: ssl.SSLContext, option: str, path: str) -> None:
    """Check that certificates can be read."""
    with _naming_file(option, path), open(path, "rb"):
        pass
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise OptionsError(option, f"{path} contains no certificate in PEM form") from error


@contextlib.contextmanager
def _naming_file(option: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionsError(option, f"{path} cannot be read: {error.strerror}") from error

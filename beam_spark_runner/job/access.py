"""TLS and the token of the job server, for both its ends."""

import collections
import contextlib
import hmac
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.access import ClientAccess, ServerAccess, host_of

REFUSED_BY_US = ("beam-spark-runner", "refused")
"""In the trailing metadata of what a service of this package refuses: gRPC itself, and other job
servers, use the same status codes."""
_HEADER = "authorization"  # RFC 6750
_TOKEN_OPTION = "client_token_file"
_LEAST_TOKEN = 16  # characters
_ANSWERS_WITHIN_S = 5.0
_REFUSAL = (
    "the job server wants its token with each call, in the metadata 'authorization: Bearer TOKEN'; "
    "with --runner=SparkPortableRunner, name the file that contains it as --job_server_token_file"
)


def check_files(access: ServerAccess) -> None:
    """Check the files of a server; gRPC does not say what is wrong with them.

    Raises:
        OptionsError: a file cannot be read, or does not contain what it should.
    """
    if access.cert is not None and access.key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_pair(context, ("tls_cert", access.cert), ("tls_key", access.key))
        if access.ca is not None:
            _load_ca(context, "tls_ca", access.ca)
    if access.token_file is not None:
        read_token(_TOKEN_OPTION, access.token_file)


def server_credentials(access: ServerAccess) -> grpc.ServerCredentials | None:
    """Read the certificates of a server, which ``check_files`` has checked; None: no TLS."""
    if access.cert is None or access.key is None:
        return None
    return grpc.ssl_server_credentials(
        [(Path(access.key).read_bytes(), Path(access.cert).read_bytes())],
        None if access.ca is None else Path(access.ca).read_bytes(),
        require_client_auth=access.ca is not None,
    )


def server_interceptors(access: ServerAccess) -> list[grpc.ServerInterceptor]:
    """Return what looks at each call before a service does; ``check_files`` has been called."""
    if access.token_file is None:
        return []
    return [_TokenWanted(read_token(_TOKEN_OPTION, access.token_file))]


def open_channel(endpoint: str, access: ClientAccess) -> grpc.Channel:
    """Open a channel to a job server, which may not be there yet.

    Args:
        endpoint: HOST:PORT.
        access: what it is shown, and must show.

    Raises:
        OptionsError: a file is wrong, or the server has another certificate.
    """
    interceptors = []
    if access.token_file is not None:
        interceptors.append(_TokenSent(read_token("job_server_token_file", access.token_file)))
    if access.ca is None:
        channel = grpc.insecure_channel(endpoint)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_ca(context, "job_server_ca", access.ca)
        key = cert = None
        if access.cert is not None and access.key is not None:
            _load_pair(context, ("job_server_cert", access.cert), ("job_server_key", access.key))
            cert, key = Path(access.cert).read_bytes(), Path(access.key).read_bytes()
        _shake_hands(endpoint, context)
        credentials = grpc.ssl_channel_credentials(Path(access.ca).read_bytes(), key, cert)
        channel = grpc.secure_channel(endpoint, credentials)
    return grpc.intercept_channel(channel, *interceptors)


def read_token(option: str, path: str) -> str:
    """Read a token.

    Raises:
        OptionsError: the file cannot be read, or its content is no token.
    """
    with _named(option, path):
        token = Path(path).read_bytes().strip()
    if len(token) < _LEAST_TOKEN or not all(0x20 < each < 0x7F for each in token):
        raise OptionsError(
            option,
            f"{path} must contain a token of at least {_LEAST_TOKEN} printable characters of "
            "ASCII, without spaces, and nothing else",
        )
    return token.decode()


class _TokenWanted(grpc.ServerInterceptor):  # type: ignore[misc]
    """Lets calls that carry the token reach their services."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()
        # A handler of streams is called before a client has sent anything.
        self._refusal = grpc.stream_stream_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """See ``grpc.ServerInterceptor``."""
        shown = [value for name, value in details.invocation_metadata if name == _HEADER]
        if len(shown) == 1 and hmac.compare_digest(shown[0].encode(), self._wanted):
            return continuation(details)
        return self._refusal


def _refuse(requests: Iterator[Any], context: Any) -> Iterator[Any]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, _REFUSAL)
    yield


class _Details(
    collections.namedtuple(
        "_Details",
        ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression"),
    ),
    grpc.ClientCallDetails,  # type: ignore[misc]
):
    """Those of a call, with the token."""


class _TokenSent(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Sends a token with each call of a kind that Beam's Job API has."""

    def __init__(self, token: str) -> None:
        self._shown = (_HEADER, f"Bearer {token}")

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        """See ``grpc.UnaryUnaryClientInterceptor``."""
        return call(self._with_token(details), request)

    def intercept_unary_stream(self, call: Any, details: Any, request: Any) -> Any:
        """See ``grpc.UnaryStreamClientInterceptor``."""
        return call(self._with_token(details), request)

    def intercept_stream_stream(self, call: Any, details: Any, requests: Any) -> Any:
        """See ``grpc.StreamStreamClientInterceptor``."""
        return call(self._with_token(details), requests)

    def _with_token(self, details: Any) -> _Details:
        return _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), self._shown],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )


def _shake_hands(endpoint: str, context: ssl.SSLContext) -> None:
    """Raise why TLS is not possible. gRPC logs that, and tries again until a time limit."""
    context.set_alpn_protocols(["h2"])
    host = host_of(endpoint)
    address = host, int(endpoint.rpartition(":")[2])
    try:
        with (
            socket.create_connection(address, _ANSWERS_WITHIN_S) as bare,
            context.wrap_socket(bare, server_hostname=host),
        ):
            pass
    except ssl.SSLCertVerificationError as error:
        raise OptionsError(
            "job_server_ca", f"the certificate of {endpoint} is refused: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise OptionsError(
            "job_server_ca", f"{endpoint} does not answer with TLS: {error.reason}"
        ) from error
    except OSError:
        pass  # it may come up yet


def _load_pair(context: ssl.SSLContext, cert: tuple[str, str], key: tuple[str, str]) -> None:
    """Check that a certificate and a private key can be read, and belong together."""
    for option, path in (cert, key):
        with _named(option, path), open(path, "rb"):
            pass
    (option, path), (_, key_path) = cert, key
    try:
        # Without a password, Python would ask for one at the terminal.
        context.load_cert_chain(path, key_path, password=lambda: b"")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "the key is encrypted, or none"
        raise OptionsError(
            option, f"{path} and {key_path} are not a certificate and its key: {reason}"
        ) from error


def _load_ca(context: ssl.SSLContext, option: str, path: str) -> None:
    """Check that certificates can be read."""
    with _named(option, path), open(path, "rb"):
        pass
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise OptionsError(option, f"{path} contains no certificate in PEM form") from error


@contextlib.contextmanager
def _named(option: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionsError(option, f"{path} cannot be read: {error.strerror}") from error

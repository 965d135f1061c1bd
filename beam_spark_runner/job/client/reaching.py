"""Waits for a job server, and finds out why it does not answer.

gRPC reports only that a channel is not connected: it looks alike whether nobody listens yet, only
one side uses TLS, or one side does not accept the certificate of the other.
"""

import logging
import os
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.access import client_context
from beam_spark_runner.options.server_access import ClientAccess, host_of

_LOGGER = logging.getLogger(__name__)
_ANSWERS_WITHIN_S = 1.2  # a slower server is waited for
_LOOK_EVERY_S = 0.5
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What an HTTP/2 client sends first, with empty settings. A server answers with its own settings.

Source: RFC 9113, section 3.4.
"""
_SETTINGS = 4  # the type of a frame
_ALERT = 0x15  # the first byte of a TLS record
_CLOSED = "the connection is closed"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # gRPC takes the first that is set


def wait_for_server(
    endpoint: str,
    access: ClientAccess,
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until a server answers. If none does yet, a warning says so at once.

    Args:
        endpoint: HOST:PORT of the server.
        access: How the client authenticates itself and the server.
        timeout_s: The longest time to wait.
        sleep: Waits for some seconds.

    Raises:
        OptionsError: No server answers in time, or one side does not accept the other, which
            waiting does not change.
    """
    deadline = time.monotonic() + timeout_s
    said = False
    while (reason := reason_of_silence(endpoint, access)) is not None:
        nobody = f"no job server answers at {endpoint} ({reason})"
        remedy = f"Start one (python -m beam_spark_runner --job_port={_port_of(endpoint)})"
        if time.monotonic() >= deadline:
            raise OptionsError(
                "job_endpoint", f"{nobody}, after {timeout_s:g} s. {remedy}, or correct the option"
            )
        if not said:
            _LOGGER.warning(
                "%s. %s, or correct --job_endpoint; it is waited for, %g s at most "
                "(--job_server_timeout)",
                nobody,
                remedy,
                timeout_s,
            )
            said = True
        sleep(_LOOK_EVERY_S)
    if said:
        _LOGGER.warning("the job server at %s answers now", endpoint)


def reason_of_silence(endpoint: str, access: ClientAccess) -> str | None:
    """Connect to a server as gRPC does.

    Returns:
        Why there is no answer, which may change. None: the server answers, or only gRPC can
        connect to it, through a proxy.

    Raises:
        OptionsError: One side does not accept the other, or a file of ``access`` is invalid.
    """
    context = client_context(access)
    host, port = host_of(endpoint), _port_of(endpoint)
    if not host or not port.isdecimal() or _is_behind_proxy(host):
        return None
    address = host, int(port)
    try:
        if context is not None:
            return _silence_over_tls(address, context, endpoint, access)
        return _silence(address, endpoint)
    except TimeoutError:
        return "nothing comes back"
    except socket.gaierror:
        return f"the name {host} is not known"
    except OSError as error:
        return (error.strerror or str(error)).lower()


def _silence(address: tuple[str, int], endpoint: str) -> str | None:
    with socket.create_connection(address, _ANSWERS_WITHIN_S) as connection:
        try:
            answer = _greet(connection)
        except ConnectionError:
            answer = b""
    if _is_settings(answer):
        return None
    if answer[:1] == bytes((_ALERT,)) or _uses_tls(address):
        raise OptionsError(
            "job_server_ca",
            f"the job server at {endpoint} uses TLS: name a PEM file with the CA of its "
            "certificate, or with the certificate itself if it is self-signed",
        )
    return _of_other(answer, endpoint)


def _silence_over_tls(
    address: tuple[str, int], context: ssl.SSLContext, endpoint: str, access: ClientAccess
) -> str | None:
    context.set_alpn_protocols(["h2"])
    refusal = OptionsError(
        "job_server_cert",
        f"the job server at {endpoint} demands a client certificate: name one, and its key as "
        "--job_server_key"
        if access.cert is None
        else f"the job server at {endpoint} refuses the certificate: a CA in its --tls_ca has to "
        "have signed it",
    )
    with socket.create_connection(address, _ANSWERS_WITHIN_S) as bare:
        try:
            connection = context.wrap_socket(bare, server_hostname=address[0])
        except ssl.SSLCertVerificationError as error:
            raise OptionsError(
                "job_server_ca", f"the certificate of {endpoint} is refused: {error.verify_message}"
            ) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return _CLOSED
        except ssl.SSLError as error:
            if error.reason and "ALERT" in error.reason:
                raise refusal from error
            raise OptionsError(
                "job_server_ca",
                f"{endpoint} does not answer with TLS ({error.reason}): leave the option out if "
                "the job server has no --tls_cert",
            ) from error
        with connection:
            # In TLS 1.3, a client's handshake ends before the server looks at its certificate.
            try:
                answer = _greet(connection)
            except (ssl.SSLError, ConnectionError) as error:
                raise refusal from error
    if not answer:
        raise refusal
    return None if _is_settings(answer) else _of_other(answer, endpoint)


def _greet(connection: socket.socket) -> bytes:
    """Return the first bytes of the answer; empty if the connection is closed."""
    connection.sendall(_PREFACE)
    answer = b""
    while len(answer) < 5 and (more := connection.recv(64)):
        answer += more
    return answer


def _is_settings(answer: bytes) -> bool:
    return len(answer) > 3 and answer[0] == 0 and answer[3] == _SETTINGS


def _of_other(answer: bytes, endpoint: str) -> str:
    if not answer:
        return _CLOSED
    raise OptionsError(
        "job_endpoint",
        f"what answers at {endpoint} is no job server: it does not speak gRPC",
    )


def _uses_tls(address: tuple[str, int]) -> bool:
    """Whether a server answers to a TLS handshake, whatever its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent over this connection
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection(address, _ANSWERS_WITHIN_S) as bare,
            context.wrap_socket(bare),
        ):
            return True
    except OSError:
        return False


def _port_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]


def _is_behind_proxy(host: str) -> bool:
    """Whether gRPC connects to a host through a proxy."""
    if not any(os.environ.get(name) for name in _PROXIES):
        return False
    return not urllib.request.proxy_bypass_environment(host)  # type: ignore[attr-defined]

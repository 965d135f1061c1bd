"""Access to a job server by TLS and a token: options of the server and of its clients.

Secrets are in files, since other users of a machine see the command lines of its processes, and
The Spark UI shows options.
"""

import dataclasses
import ipaddress
from dataclasses import dataclass

from beam_spark_runner.core.errors import OptionsError

_NO_EFFECT = "has no effect unless --{} is set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """How a job server authenticates itself and its clients.

    Attributes:
        cert, key: The server's certificate (with the chain to its CA) and private key, PEM files.
            Both or neither; None: no TLS.
        ca: A PEM file of CAs, one of which must have signed the client's certificate.
        token_file: A file with the token that each call must have.
    """

    cert: str | None = None
    key: str | None = None
    ca: str | None = None
    token_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAccess:
    """How a client authenticates itself and the job server.

    Attributes:
        ca: A PEM file of CAs, one of which must have signed the server's certificate.
            None: no TLS.
        cert, key: The client's own certificate and private key, PEM files. Both or neither.
        token_file: A file with the token that is sent with each call.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token_file: str | None = None


def check_server_access(access: ServerAccess) -> None:
    """Check that the access options of a server are consistent.

    Raises:
        OptionsError: An option has no effect without another.
    """
    _both(("tls_cert", access.cert), ("tls_key", access.key))
    if access.ca and not access.cert:
        raise OptionsError("tls_ca", "has no effect unless --tls_cert and --tls_key are set")


def check_client_access(
    access: ClientAccess, endpoint: str | None, artifact_endpoint: str | None = None
) -> None:
    """Check that the access options of a client are consistent.

    Args:
        access: The access options of the client.
        endpoint: HOST:PORT of the job server; None: there is none.
        artifact_endpoint: HOST:PORT to which files are sent; None: not given.

    Raises:
        OptionsError: An option has no effect without another, or the token would be sent
            unencrypted.
    """
    for field in dataclasses.fields(access):
        if getattr(access, field.name) and not endpoint:
            raise OptionsError(f"job_server_{field.name}", _NO_EFFECT.format("job_endpoint"))
    _both(("job_server_cert", access.cert), ("job_server_key", access.key))
    if access.cert and not access.ca:
        raise OptionsError("job_server_cert", _NO_EFFECT.format("job_server_ca"))
    if not access.token_file or access.ca:
        return
    for address in (endpoint, artifact_endpoint):
        if address and not is_loopback(host_of(address)):
            raise OptionsError(
                "job_server_token_file",
                f"the token would be sent to {address} without encryption; name the CA of the "
                "server's certificate as --job_server_ca",
            )


def host_of(endpoint: str) -> str:
    """Return the host of HOST:PORT, an IPv6 address without its brackets."""
    return endpoint.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an address, is a loopback address of this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _both(*options: tuple[str, str | None]) -> None:
    (name, value), (other, others_value) = options
    if bool(value) != bool(others_value):
        missing = other if value else name
        raise OptionsError(name if value else other, _NO_EFFECT.format(missing))

"""Clients of Redis and Valkey, single servers and Clusters: one for each process."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.credentials import CredentialProvider
from redis.retry import Retry
from typing_extensions import override

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.key_store import StateStoreError

RedisClient: TypeAlias = "redis.Redis | RedisCluster"

_CONNECTS_WITHIN_S = 10.0
_ANSWERS_WITHIN_S = 30.0
_OPTION = "state_store"


def client_of(address: StateStoreAddress) -> RedisClient:
    """Return this process's client of a server, or of the Cluster to which the server belongs.

    Raises:
        OptionsError: The server belongs to a Cluster, but the URL is that of a socket, or it does
            not say what it is.
        StateStoreError: The server does not answer, or the file with the password cannot be read.
    """
    with reaching(address.url):
        return _client_of(address, os.getpid())


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Turn the client's errors into ``StateStoreError``.

    Args:
        place: The URL of the server.
    """
    try:
        yield
    except (redis.RedisError, OSError) as error:
        problem = str(error)
        if "TTL exhausted" in problem:  # it was sent from node to node
            problem = "some of its keys are moving to another node of the Cluster"
        raise StateStoreError(place, problem) from error


@functools.lru_cache(4)
def _client_of(address: StateStoreAddress, process: int) -> RedisClient:
    url = address.url
    settings: dict[str, Any] = {
        "socket_connect_timeout": _CONNECTS_WITHIN_S,
        "socket_timeout": _ANSWERS_WITHIN_S,
        # The caller repeats what has failed, once it knows the tags of its groups.
        "retry": Retry(NoBackoff(), 0),
    }
    if address.password_file is not None:
        user = urlsplit(url).username
        settings["credential_provider"] = _PasswordFile(user, address.password_file)
        if user is not None:
            # The client takes a user's name from the URL, or from the provider, not from both.
            url = url.replace(f"//{user}@", "//", 1)
    server = redis.Redis.from_url(url, **settings)
    try:
        info: Any = server.info("cluster")
    except redis.exceptions.NoPermissionError as error:
        raise OptionsError(_OPTION, "does not allow its user the command INFO") from error
    if not info.get("cluster_enabled"):
        return server
    server.close()
    if url.startswith("unix:"):
        raise OptionsError(_OPTION, "is a socket of a Redis Cluster; use redis://HOST:PORT")
    return RedisCluster(url=url, **settings)


class _PasswordFile(CredentialProvider):
    """Reads the password for each new connection, so that it may change while pipelines run."""

    def __init__(self, user: str | None, path: str) -> None:
        self._user, self._path = user, path

    @override
    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            password = Path(self._path).read_text().strip()
        except OSError as error:
            raise redis.AuthenticationError(f"its password cannot be read: {error}") from error
        return (unquote(self._user), password) if self._user else (password,)

"""The namespaces of checkpoints in Redis or Valkey."""

import json
import logging
import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.redis_checks import check_server
from beam_spark_runner.state.remote.redis_client import RedisClient, client_of, reaching
from beam_spark_runner.state.remote.redis_store import OWNERS, RedisStore

_LOGGER = logging.getLogger(__name__)
_EPOCHS = "bsr:epochs"
_SCANNED = 1_000  # names that the server looks at in one step


class RedisNamespaces:
    """See ``Namespaces``.

    Args:
        address: The address of the server.
        folder: The URL or path of the checkpoint.
        job_name: The name of the job, for people.
        key_groups: The number of key groups.
    """

    def __init__(
        self, address: StateStoreAddress, folder: str, job_name: str, key_groups: int
    ) -> None:
        self._address, self._key_groups = address, key_groups
        self._folder, self._job_name = folder, job_name

    def new(self) -> str:
        """See ``Namespaces``."""
        return secrets.token_hex(8)

    def claim(self, namespace: str) -> bool:
        """See ``Namespaces``."""
        owner = {"folder": self._folder, "job": self._job_name, "since_s": int(time.time())}
        with self._reaching() as client:
            client.hsetnx(OWNERS, namespace, json.dumps(owner))
            found = client.hget(OWNERS, namespace)
        folder = None if found is None else json.loads(found)["folder"]
        if folder != self._folder:
            _LOGGER.warning(
                "namespace %s in %s belongs to the checkpoint in %s, so this one gets another "
                "namespace. If that folder was moved here, remove what it has left: "
                "beam-spark-state-store --state_store=%s drop %s",
                *(namespace, self._address.url, folder, self._address.url, namespace),
            )
        return folder == self._folder

    def note(self, namespace: str, epoch: int) -> None:
        """See ``Namespaces``."""
        with self._reaching() as client:
            client.hset(_EPOCHS, namespace, str(epoch))

    def drop(self, namespace: str, numbers: Collection[int]) -> None:
        """See ``Namespaces``."""
        for number in numbers:
            store = RedisStore(client_of(self._address), self._address.url, namespace, number)
            store.drop(range(self._key_groups))

    def forget(self, namespace: str) -> None:
        """See ``Namespaces``."""
        with self._reaching() as client:
            client.hdel(OWNERS, namespace)
            client.hdel(_EPOCHS, namespace)

    def check(self) -> None:
        """Check that the server can have keys; see ``check_server`` for the errors."""
        check_server(self._address)

    def _reaching(self) -> AbstractContextManager[RedisClient]:
        return _reaching(self._address)


class Owner(NamedTuple):
    """Whose data is in a namespace.

    Attributes:
        namespace: The namespace.
        folder: The URL or path of the checkpoint.
        job: The name of the job; empty: it has none.
        epoch: The last committed epoch that was noted.
    """

    namespace: str
    folder: str
    job: str
    epoch: int


def owners(address: StateStoreAddress) -> Sequence[Owner]:
    """Return the namespaces in a server, in the order of their checkpoints.

    Raises:
        StateStoreError: The server does not work.
    """
    with _reaching(address) as client:
        found: Any = client.hgetall(OWNERS)
        epochs: Any = client.hgetall(_EPOCHS)
    return sorted(
        (
            Owner(name.decode(), owner["folder"], owner["job"], int(epochs.get(name, 0)))
            for name, owner in ((name, json.loads(coded)) for name, coded in found.items())
        ),
        key=lambda each: (each.folder, each.namespace),
    )


def drop_namespace(address: StateStoreAddress, namespace: str) -> int:
    """Remove all that is in a namespace; return the number of groups.

    Raises:
        StateStoreError: The server does not work.
    """
    groups = 0
    with _reaching(address) as client:
        for key in client.scan_iter(f"bsr:{{{namespace}.*", count=_SCANNED):
            groups += key.endswith(b"}")
            client.unlink(key)
        client.hdel(OWNERS, namespace)
        client.hdel(_EPOCHS, namespace)
    return groups


@contextmanager
def _reaching(address: StateStoreAddress) -> Iterator[RedisClient]:
    with reaching(address.url):
        yield client_of(address)

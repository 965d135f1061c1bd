"""A Redis server of tests with a replica, which lags and takes its place."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from tests.harness.processes import lasting_port, wait_for
from tests.state_store.holding_proxy import holding_proxy
from tests.state_store.servers import RedisServer

_WITHOUT_DELAY = ("--repl-diskless-sync-delay", "0")


class ReplicatedServer:
    """A server, and a replica that may lag behind it. Tasks in other processes may have a copy.

    Attributes:
        primary: The server, until it is killed; then its address is that of the replica.
        url: The URL of the server, whichever it is.
        held: A path. While there is a file, the replica gets nothing new.
    """

    def __init__(self, primary: RedisServer, replica: RedisServer, folder: Path) -> None:
        self.primary, self._replica = primary, replica
        self.url, self.held = primary.url, folder / "held"

    def client(self) -> redis.Redis:
        """Return a client of the server, whichever it is."""
        return self.primary.client()

    def lag(self) -> None:
        """Let the replica lag behind, from now on."""
        wait_for(lambda: self._offset(self.primary) == self._offset(self._replica))
        self.held.touch()

    def promote(self) -> int:
        """Let the replica take the place of the server, which is killed.

        Returns:
            How many bytes of changes are lost; 0 if it has taken its place already.
        """
        here, there = self._socket(self.primary), self._socket(self._replica)
        if not there.exists():
            return 0
        lost = self._offset(self.primary) - self._offset(self._replica)
        self._replica.client().replicaof("NO", "ONE")
        server: Any = self.primary.client().info("server")
        os.rename(there, here)  # new connections reach the replica
        os.kill(server["process_id"], signal.SIGKILL)
        return lost

    def _socket(self, server: RedisServer) -> Path:
        return Path(server.url.removeprefix("unix://"))

    @staticmethod
    def _offset(server: RedisServer) -> int:
        """Return how many bytes of changes a server has made or got."""
        info: Any = server.client().info("replication")
        is_replica = info["role"] == "slave"
        return int(info["slave_repl_offset" if is_replica else "master_repl_offset"])


def _is_linked(replica: RedisServer) -> bool:
    info: Any = replica.client().info("replication")
    return bool(info["master_link_status"] == "up")


@contextlib.contextmanager
def replicated_server(folder: Path) -> Iterator[ReplicatedServer]:
    """Run a server with a replica. The path must be short."""
    places = folder / "p", folder / "r"
    for each in places:
        each.mkdir()
    port = lasting_port()
    with contextlib.ExitStack() as running:
        primary = RedisServer(places[0], "--port", str(port), *_WITHOUT_DELAY)
        running.callback(primary.kill)
        link = running.enter_context(holding_proxy(port, folder / "held"))
        replica = RedisServer(places[1], "--replicaof", "127.0.0.1", str(link))
        running.callback(replica.kill)
        wait_for(lambda: _is_linked(replica))
        yield ReplicatedServer(primary, replica, folder)

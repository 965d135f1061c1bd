"""A Redis Cluster of tests: three primaries, between which slots can move."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from tests.harness.processes import lasting_port, wait_for
from tests.state_store.servers import RedisServer

_SLOTS = 16384
_NODES = 3
_FOR_NODES = 10_000  # above the port of clients
_CONNECTIONS = 32_768  # the first port of connections
_MOVES_WITHIN_MS = 10_000


class Cluster:
    """A Redis Cluster.

    Args:
        folder: Where the files of its nodes are. The path must be short.
        settings: Further flags of its nodes.
        program: The server. None: the first one that is installed.
        has_tls: Whether its nodes use TLS, for clients and among each other.

    Attributes:
        url: Its URL.
        nodes: Its primaries.
    """

    def __init__(
        self, folder: Path, *settings: str, program: str | None = None, has_tls: bool = False
    ) -> None:
        self.nodes: list[RedisServer] = []
        self._ports: list[int] = []
        self._moving: dict[int, tuple[int, int]] = {}  # slots, from one node to another one
        for number in range(_NODES):
            place = folder / str(number)
            place.mkdir()
            port = _port_of_node()
            flags = (
                *("--tls-port" if has_tls else "--port", str(port)),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", "5000"),
            )
            self.nodes.append(RedisServer(place, *flags, *settings, program=program))
            self._ports.append(port)
        self.url = f"redis{'s' if has_tls else ''}://127.0.0.1:{self._ports[0]}"
        clients = [node.client() for node in self.nodes]
        self._owners = [slot * _NODES // _SLOTS for slot in range(_SLOTS)]
        for number, client in enumerate(clients):
            slots = (slot for slot, owner in enumerate(self._owners) if owner == number)
            _do(client, "CLUSTER", "ADDSLOTS", *slots)
        self._ids = [_do(client, "CLUSTER", "MYID").decode() for client in clients]
        wait_for(lambda: all([self._is_complete(client) for client in clients]))

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()

    def owner(self, key: bytes) -> int:
        """Return the number of the node that has a key, until its slot has moved."""
        return self._owners[key_slot(key)]

    def begin_to_move(self, slot: int, to: int, keys: int = 0) -> None:
        """Begin to move a slot to another node, and move some of its keys."""
        source = self._owners[slot]
        if slot in self._moving or source == to:
            return
        self._moving[slot] = source, to
        _do(self._client(to), "CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[source])
        _do(self._client(source), "CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[to])
        self._move_keys(slot, keys)

    def finish_moving(self) -> None:
        """Move the other keys of all slots that are moving, and tell all nodes."""
        for slot in list(self._moving):
            while self._move_keys(slot, 100):
                pass
            _, to = self._moving.pop(slot)
            self._owners[slot] = to
            self._give(slot, to)

    def _give(self, slot: int, to: int) -> None:
        """Make a node the owner of a slot, until all nodes agree.

        A message that a former owner has sent earlier may take the slot from the new one, so that
        nobody has it: the number of the new owner's claims is raised, and it is asked again.
        """
        while any(self._owner_for(number, slot) != self._ids[to] for number in range(_NODES)):
            for number in (to, *(each for each in range(_NODES) if each != to)):
                _do(self._client(number), "CLUSTER", "SETSLOT", slot, "NODE", self._ids[to])
            _do(self._client(to), "CLUSTER", "BUMPEPOCH")

    def _owner_for(self, number: int, slot: int) -> str | None:
        """Return the id of the node that has a slot as far as a node knows."""
        for first, last, (_, _, owner, *_), *_ in _do(self._client(number), "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return str(owner.decode() if isinstance(owner, bytes) else owner)
        return None

    def move(self, slot: int, to: int) -> None:
        self.begin_to_move(slot, to)
        self.finish_moving()

    def _move_keys(self, slot: int, count: int) -> int:
        source, to = self._moving[slot]
        client = self._client(source)
        keys = _do(client, "CLUSTER", "GETKEYSINSLOT", slot, count)
        for key in keys:
            place = "127.0.0.1", self._ports[to]
            _do(client, "MIGRATE", *place, key, 0, _MOVES_WITHIN_MS)
        return len(keys)

    def _client(self, number: int) -> redis.Redis:
        return self.nodes[number].client()

    def _is_complete(self, client: redis.Redis) -> bool:
        info: Any = client.cluster("info")
        if int(info["cluster_known_nodes"]) < _NODES:
            _do(
                client, "CLUSTER", "MEET", "127.0.0.1", self._ports[0]
            )  # an earlier one may be lost
            return False
        return bool(info["cluster_state"] == "ok")


def _port_of_node() -> int:
    """Return a port of which the port for messages between nodes is none of connections, either."""
    while True:
        port = lasting_port()
        if port + _FOR_NODES < _CONNECTIONS:
            return port


def _do(client: redis.Redis, *command: Any) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def redis_cluster(
    folder: Path, *settings: str, program: str | None = None, has_tls: bool = False
) -> Iterator[Cluster]:
    """Run a Redis Cluster; see ``Cluster``."""
    cluster = Cluster(folder, *settings, program=program, has_tls=has_tls)
    try:
        yield cluster
    finally:
        cluster.stop()

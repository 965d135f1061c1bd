"""What a Redis or Valkey server must be, so that it can have keys."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import redis
from redis.cluster import RedisCluster

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.state.remote.redis_client import RedisClient, client_of, reaching
from beam_spark_runner.state.remote.redis_store import RedisStore

_OPTION = "state_store"


def check_server(address: StateStoreAddress) -> None:
    """Check that a server, or each primary of a Cluster, can have keys.

    Raises:
        OptionsError: It is a replica, it evicts keys, or it forbids commands that are needed.
        StateStoreError: It is not reachable.
    """
    with reaching(address.url):
        client = client_of(address)
        for info in _infos(client):
            _check_info(info)
        _check_commands(client)
        RedisStore(client, address.url, "check", 0).open([0])


def _infos(client: RedisClient) -> Iterator[Mapping[str, Any]]:
    info: Any
    if isinstance(client, RedisCluster):
        for node in client.get_primaries():  # type: ignore[no-untyped-call]
            info = client.info(target_nodes=node)
            yield info
    else:
        info = client.info()
        yield info


def _check_info(info: Mapping[str, Any]) -> None:
    if info.get("role") == "slave":
        raise OptionsError(_OPTION, "is a replica; name the primary, which can be written")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        raise OptionsError(
            _OPTION,
            f"removes keys when its memory is full (maxmemory-policy {policy}), and they would "
            "be copied to it again and again; set maxmemory-policy to noeviction",
        )


def _check_commands(client: RedisClient) -> None:
    """Execute all commands that are needed, in scripts and otherwise, on keys that do not last."""
    base = f"bsr:{{{secrets.token_hex(8)}}}"
    commands = _needed(base)
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    replies = pipeline.execute(raise_on_error=False)
    try:
        client.script_load("return 1")
    except redis.ResponseError as error:
        commands, replies = [*commands, ["SCRIPT LOAD"]], [*replies, error]
    forbidden = [
        str(command[0])
        for command, reply in zip(commands, replies, strict=True)
        if isinstance(reply, redis.exceptions.NoPermissionError) or _is_unknown(reply)
    ]
    if forbidden:
        raise OptionsError(
            _OPTION,
            f"does not allow its user {', '.join(dict.fromkeys(forbidden))}; allow all commands of "
            "hashes, sorted sets, keys and scripts, on keys that begin with bsr:",
        )
    for reply in replies:
        if isinstance(reply, Exception) and not isinstance(reply, redis.exceptions.NoScriptError):
            raise reply


def _is_unknown(reply: object) -> bool:
    return isinstance(reply, redis.ResponseError) and "unknown command" in str(reply).lower()


def _needed(base: str) -> Sequence[Sequence[Any]]:
    members, other = f"{base}:n", f"{base}:m"
    return (
        ("HSET", base, "a", "1"),
        ("HSETNX", base, "b", "2"),
        ("HGET", base, "a"),
        ("HMGET", base, "a", "b"),
        ("HGETALL", base),
        ("HLEN", base),
        ("HSCAN", base, 0),
        ("HDEL", base, "a"),
        ("ZADD", members, 0, "a"),
        ("ZCARD", members),
        ("ZRANGE", members, 0, 0),
        ("ZRANGEBYLEX", members, "-", "+"),
        ("ZREMRANGEBYLEX", members, "[b", "(c"),
        ("ZREM", members, "b"),
        ("EXISTS", members),
        ("EXPIRE", members, 60),
        ("PERSIST", members),
        ("RENAME", members, other),
        ("EVALSHA", "0" * 40, 1, base),
        ("UNLINK", base, other),
    )

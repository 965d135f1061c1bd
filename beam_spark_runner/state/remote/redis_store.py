"""Groups of keys in Redis or Valkey: see ``key_store``."""

import functools
import hashlib
import itertools
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import redis
from redis.cluster import RedisCluster

from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote import redis_scripts as scripts
from beam_spark_runner.state.remote.key_store import (
    INDEXES,
    Change,
    Chunk,
    Installation,
    Known,
    Names,
    Opened,
    Packs,
    Read,
    Reply,
    StateStoreError,
    Structure,
    Values,
)
from beam_spark_runner.state.remote.redis_client import RedisClient, reaching

OWNERS = "bsr:owners"
"""The name of a hash: whose data is in each namespace."""

_EXPIRES_S = 3600  # temporary names of a rebuild whose task has died
_SETS = {**{each: each.value for each in INDEXES}, Structure.OUTLYING: b"n"}
_LETTERS = {each: each.value for each in Structure}
_REMOVES = {each: each.value.upper() for each in Structure}
_COUNTED = (Structure.PACKS, Structure.OUTLYING, *INDEXES, Structure.PIECES)
_NOTHING = (0,) * len(_COUNTED)
_AT_ONCE = 64  # groups on which one script works
_Command: TypeAlias = tuple[Any, ...]


class RedisStore:
    """See ``KeyStore``.

    Args:
        client: Of the server or Cluster.
        place: How errors call the server.
        namespace: The namespace of the checkpoint.
        number: The store number of the stage.
    """

    def __init__(self, client: RedisClient, place: str, namespace: str, number: int) -> None:
        self._client, self.place = client, place
        self._is_cluster = isinstance(client, RedisCluster)
        self._at_once = 1 if self._is_cluster else _AT_ONCE  # a script runs on one node
        self._namespace, self._prefix = namespace, f"{namespace}.{number}"

    def check_known(self) -> None:
        """See ``KeyStore``."""
        (owner,) = self._execute([("HGET", OWNERS, self._namespace)])
        if owner is None:
            raise StateStoreError(
                self.place,
                f"the server that {platform.node()} reaches does not know the namespace "
                f"{self._namespace}: it has lost its data, or it is not the server of the driver",
            )

    def open(self, groups: Sequence[int]) -> Sequence[Opened]:
        """See ``KeyStore``."""
        bases = [self._base(each) for each in groups]
        commands = [_script(scripts.OPEN, some) for some in _parts(bases, self._at_once)]
        return [_opened(*found) for reply in self._execute(commands) for found in reply]

    def read(self, reads: Sequence[Read]) -> Sequence[Reply]:
        """See ``KeyStore``."""
        replies = self._execute([self._command(each) for each in reads])
        return [_reply(*each) for each in zip(reads, replies, strict=True)]

    def apply(self, chunks: Sequence[Chunk]) -> Sequence[bool]:
        """See ``KeyStore``."""
        commands = []
        for same, together in itertools.groupby(chunks, lambda each: each._replace(group=0)):
            bases = [self._base(each.group) for each in together]
            at_once = 1 if same.changes else self._at_once
            arguments = (
                *(_text(same.expected), _text(same.version), "d" if same.is_direct else "a"),
                *(same.number, int(same.is_last), *_coded(same.changes)),
            )
            for some in _parts(bases, at_once):
                commands.append(_script(scripts.APPLY, some, *arguments))
        return [accepted == 1 for reply in self._execute(commands) for accepted in reply]

    def install(self, group: int, version: ShardVersion | None) -> Installation:
        """See ``KeyStore``."""
        return _Installation(self._execute, self.place, self._base(group), version)

    def drop(self, groups: Sequence[int]) -> None:
        """See ``KeyStore``."""
        self._execute([_script(scripts.DROP, self._base(each)) for each in groups])

    def _base(self, group: int) -> str:
        return f"bsr:{{{self._prefix}.{group}}}"  # the braces keep a group on one node of a Cluster

    def _command(self, read: Read) -> _Command:
        base = self._base(read.group)
        if isinstance(read, Packs):
            return ("HMGET", base, "", *read.names)
        if isinstance(read, Names):
            end = b"(" + read.end if read.end else b"+"
            return _script(
                scripts.NAMES, base, _SETS[read.structure], b"[" + read.start, end, read.limit
            )
        if isinstance(read, Values):
            return _script(scripts.VALUES, base, read.structure.value, *read.names)
        if isinstance(read, Known):
            return _script(scripts.KNOWN, base, *read.names)
        return _script(scripts.PACKS_FROM, base, read.cursor)

    def _execute(self, commands: Sequence[_Command]) -> list[Any]:
        with reaching(self.place):
            replies = self._attempt(commands)
            missing = {
                command[1]
                for command, reply in zip(commands, replies, strict=True)
                if isinstance(reply, redis.exceptions.NoScriptError)
            }
            if missing:  # the server has been restarted
                for text in map(_TEXTS.__getitem__, missing):
                    self._client.script_load(text)
                replies = self._attempt(commands)
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        return replies

    def _attempt(self, commands: Sequence[_Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            whole = _with_all_keys(command) if self._is_cluster else command
            pipeline.execute_command(*whole)
        return pipeline.execute(raise_on_error=False)


class _Installation:
    """See ``Installation``."""

    def __init__(
        self,
        execute: Callable[[Sequence[_Command]], list[Any]],
        place: str,
        base: str,
        version: ShardVersion | None,
    ) -> None:
        self._execute, self._place = execute, place
        self._base, self._version = base, version
        self._new = f"{base}:{secrets.token_hex(8)}"
        self._added = 0

    def add(self, changes: Sequence[Change]) -> None:
        """See ``Installation``."""
        self._do(_script(scripts.ADD, self._new, _EXPIRES_S, self._added, *_coded(changes)), 0)
        self._added += 1

    def finish(self) -> None:
        """See ``Installation``."""
        bases = self._base, self._new
        self._do(_script(scripts.FINISH, bases, _text(self._version), self._added), -1)

    def abandon(self) -> None:
        """See ``Installation``."""
        with suppress(StateStoreError):  # then it expires
            self._execute([_script(scripts.DROP, self._new)])

    def _do(self, command: _Command, lost: int) -> None:
        if self._execute([command])[0] == lost:
            raise StateStoreError(self._place, "it has lost what was just written to it")


def _script(text: str, bases: str | Sequence[str], *arguments: Any) -> _Command:
    keys = (bases,) if isinstance(bases, str) else bases
    return ("EVALSHA", _DIGESTS[text], len(keys), *keys, *arguments)


def _with_all_keys(command: _Command) -> _Command:
    """Name all keys of a script. Then no node of a Cluster begins it while it has some of them."""
    if command[0] != "EVALSHA":
        return command
    name, digest, count, *rest = command
    bases, arguments = rest[:count], rest[count:]
    keys = [*bases, *(f"{base}:{letter}" for base in bases for letter in "oncehp")]
    return (name, digest, len(keys), *keys, *arguments)


def _parts(bases: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (bases[at : at + size] for at in range(0, len(bases), size))


_ALL = (
    *(scripts.OPEN, scripts.VALUES, scripts.KNOWN, scripts.NAMES, scripts.PACKS_FROM),
    *(scripts.APPLY, scripts.ADD, scripts.FINISH, scripts.DROP),
)
# Redis names scripts by this digest; it protects nothing.
_DIGESTS = {text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for text in _ALL}
_TEXTS = {digest: text for text, digest in _DIGESTS.items()}


def _coded(changes: Sequence[Change]) -> Iterator[bytes]:
    for structure, name, value in changes:
        yield _LETTERS[structure] if value is not None else _REMOVES[structure]
        yield name
        yield value or b""


def _text(version: ShardVersion | None) -> str:
    return "" if version is None else f"{version.epoch}.{version.attempt}"


@functools.lru_cache(256)
def _version(text: bytes) -> DeltaId | None:
    if not text:
        return None
    epoch, attempt = text.split(b".")
    return DeltaId(int(epoch), int(attempt))


def _tag(coded: bytes | None, sizes: Sequence[int] | None = None) -> GroupTag:
    """Decode a tag.

    Args:
        coded: The tag; None: there is none.
        sizes: How many entries there are; None: they are not known.
    """
    if coded is None:
        return GroupTag(is_whole=sizes is None or not any(sizes))
    complete, applying, _, _, *counts, _ = coded.split(b"|")
    is_whole = sizes is None or list(map(int, counts)) == list(sizes)
    return GroupTag(_version(complete), _version(applying), is_whole)


def _count(coded: bytes | None, structure: Structure) -> int:
    return 0 if coded is None else int(coded.split(b"|")[4 + _COUNTED.index(structure)])


@functools.lru_cache(256)  # all groups of a partition have few tags
def _empty(tag: bytes | None) -> Opened:
    return Opened(_tag(tag, _NOTHING), dict.fromkeys(_COUNTED, 0), {})


def _opened(
    tag: bytes | None, sizes: Sequence[int] | None = None, *firsts: Sequence[bytes]
) -> Opened:
    if sizes is None:
        return _empty(tag)
    return Opened(
        _tag(tag, sizes),
        dict(zip(_COUNTED, sizes, strict=True)),
        {each: first[0] for each, first in zip(INDEXES, firsts, strict=True) if first},
    )


def _reply(read: Read, reply: Any) -> Reply:
    if isinstance(read, Packs):
        tag, *values = reply
        return Reply(_tag(tag), values)
    if isinstance(read, Names):
        tag, size, names = reply
        is_whole = size == _count(tag, read.structure)
        return Reply(_tag(tag)._replace(is_whole=is_whole), names)
    if isinstance(read, Values):
        tag, size, values = reply
        is_whole = size == _count(tag, read.structure)
        return Reply(_tag(tag)._replace(is_whole=is_whole), values)
    if isinstance(read, Known):
        tag, size, known = reply
        is_whole = size == _count(tag, Structure.OUTLYING)
        return Reply(
            _tag(tag)._replace(is_whole=is_whole), [b"" if each else None for each in known]
        )
    tag, (cursor, values) = reply
    return Reply(_tag(tag), values, int(cursor))

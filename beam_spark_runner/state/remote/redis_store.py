"""Groups of keys in Redis or Valkey: see ``key_store``."""

import functools
import hashlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote import redis_scripts as scripts
from beam_spark_runner.state.remote.key_store import (
    INDEXES,
    Change,
    Chunk,
    Installation,
    Names,
    Opened,
    Packs,
    Read,
    Reply,
    StateStoreError,
    Structure,
    Values,
)

_CONNECTS_WITHIN_S = 10.0
_ANSWERS_WITHIN_S = 30.0
_EXPIRES_S = 3600  # temporary names of a rebuild whose task has died
_SETS = {**{each: each.value for each in INDEXES}, Structure.OUTLYING: b"n"}
_COUNTED = (Structure.PACKS, Structure.OUTLYING, *INDEXES)
_NOTHING = (0,) * len(_COUNTED)
_AT_ONCE = 64  # groups on which one script works
_Command: TypeAlias = tuple[Any, ...]


def client_of(address: StateStoreAddress) -> redis.Redis:
    """Return this process's client of a server. Its connections are made when they are needed.

    Raises:
        StateStoreError: The file with the password cannot be read.
    """
    return _client_of(address, os.getpid())


@functools.lru_cache(4)
def _client_of(address: StateStoreAddress, process: int) -> redis.Redis:
    password = None
    if address.password_file is not None:
        try:
            password = Path(address.password_file).read_text().strip()
        except OSError as error:
            raise StateStoreError(address.url, f"its password cannot be read: {error}") from error
    return redis.Redis.from_url(
        address.url,
        password=password,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=_CONNECTS_WITHIN_S,
        socket_timeout=_ANSWERS_WITHIN_S,
    )


class RedisStore:
    """See ``KeyStore``.

    Args:
        client: Of the server. It must not repeat commands by itself: those of a chunk that may
            have been executed are repeated only after the tag was read again.
        place: How errors call the server.
        namespace: The namespace of the checkpoint.
        number: The store number of the stage.
    """

    def __init__(self, client: "redis.Redis", place: str, namespace: str, number: int) -> None:
        self._client, self.place = client, place
        self._prefix = f"{namespace}.{number}"

    def open(self, groups: Sequence[int]) -> Sequence[Opened]:
        """See ``KeyStore``."""
        bases = [self._base(each) for each in groups]
        commands = [_script(scripts.OPEN, some) for some in _parts(bases, _AT_ONCE)]
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
            at_once = 1 if same.changes else _AT_ONCE
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
            return _script(scripts.VALUES, base, *read.names)
        return _script(scripts.PACKS_FROM, base, read.cursor)

    def _execute(self, commands: Sequence[_Command]) -> list[Any]:
        with self._reaching():
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
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        return pipeline.execute(raise_on_error=False)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise StateStoreError(self.place, str(error)) from error


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


def _parts(bases: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (bases[at : at + size] for at in range(0, len(bases), size))


_ALL = (
    *(scripts.OPEN, scripts.VALUES, scripts.NAMES, scripts.PACKS_FROM),
    *(scripts.APPLY, scripts.ADD, scripts.FINISH, scripts.DROP),
)
# Redis names scripts by this digest; it protects nothing.
_DIGESTS = {text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for text in _ALL}
_TEXTS = {digest: text for text, digest in _DIGESTS.items()}


def _coded(changes: Sequence[Change]) -> Iterator[bytes]:
    for structure, name, value in changes:
        yield structure.value if value is not None else structure.value.upper()
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
        is_whole = size == _count(tag, Structure.OUTLYING)
        return Reply(_tag(tag)._replace(is_whole=is_whole), values)
    tag, (cursor, values) = reply
    return Reply(_tag(tag), values, int(cursor))

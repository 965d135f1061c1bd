"""Decides how a group of keys in the state store is brought to the version of a checkpoint.

The deltas in the checkpoint are authoritative, and the state store has a copy, group by group. A
group whose tag has a version has exactly the content of that version, however it got there: a store
that has lost its last writes, or a replica that was promoted, is only at an earlier version.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from beam_spark_runner.recovery.heads import DeltaId

KNOWN_VERSIONS = 100
"""How many of its last versions a group of keys has in the end of its newest delta."""


class GroupTag(NamedTuple):
    """What the state store says about a group.

    Attributes:
        complete: The version whose content the group has, but for the changes of ``applying``.
            None: no version was ever completed there.
        applying: A later version, of which some changes have been applied. None: there is none.
        is_whole: Whether the group has as many entries as it should have.
    """

    complete: DeltaId | None = None
    applying: DeltaId | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class KeyedHistory:
    """The versions of a partition's groups that lead to its head, as its newest delta has them.

    Attributes:
        known: The last versions, oldest first; the last one is the head. Empty: there is no head.
        since: The version after which all changes are in the deltas of ``links``. None: they have
            all changes.
        links: The versions whose deltas still exist, oldest first. A delta has the changes since
            the link before it.
    """

    known: Sequence[DeltaId] = ()
    since: DeltaId | None = None
    links: Sequence[DeltaId] = ()

    @property
    def head(self) -> DeltaId | None:
        """The version of the checkpoint."""
        return self.known[-1] if self.known else None


class Use(NamedTuple):
    """The group is at the head."""


class Apply(NamedTuple):
    """The changes of these versions bring the group to the head, in this order.

    Attributes:
        versions: Some of the last links.
        is_direct: Whether the group is at the version that precedes the only one of them. Then only
            the changes of that version are needed, and not those of older ones that were merged.
    """

    versions: Sequence[DeltaId]
    is_direct: bool


class Rebuild(NamedTuple):
    """The group is replaced, from all links."""


class Overtaken(NamedTuple):
    """The group is ahead of the checkpoint: another driver has continued, or it was set back."""


Decision: TypeAlias = Use | Apply | Rebuild | Overtaken


class Namespaces(Protocol):
    """The namespaces of checkpoints in a state store, of which each has one.

    All methods raise ``CheckpointStorageError`` if the store does not work.
    """

    def new(self) -> str:
        """Return a namespace that nobody has used."""
        ...

    def claim(self, namespace: str) -> bool:
        """Note that a namespace belongs to this checkpoint; False: it belongs to another one.

        It does if the checkpoint's folder was copied, or a savepoint was made of it.
        """
        ...

    def note(self, namespace: str, epoch: int) -> None:
        """Note the last committed epoch, for people."""
        ...

    def drop(self, namespace: str, numbers: Collection[int]) -> None:
        """Remove what stages have there, by their store numbers."""
        ...

    def forget(self, namespace: str) -> None:
        """Forget a namespace in which nothing is left."""
        ...


def resolve(tag: GroupTag, history: KeyedHistory) -> Decision:
    """Decide how a group is brought to the head. It is total: each pair has a decision.

    Args:
        tag: The tag of the group.
        history: The versions of the group that the checkpoint knows.
    """
    if tag.complete == history.head and tag.applying is None and tag.is_whole:
        return Use()  # as it is nearly always
    if _is_ahead(tag.complete, history) or _is_ahead(tag.applying, history):
        return Overtaken()
    if not tag.is_whole:
        return Rebuild()
    if tag.complete == history.head:
        return Use()
    if tag.complete is None:
        place = -1
        has_all = history.since is None
    elif tag.complete in history.known:
        place = history.known.index(tag.complete)
        has_all = history.since not in history.known[place + 1 :]
    else:
        return Rebuild()
    if not has_all:
        return Rebuild()
    later = history.known[place + 1 :]
    versions = tuple(link for link in history.links if link in later or tag.complete is None)
    return Apply(versions, is_direct=len(later) == 1)


def _is_ahead(version: DeltaId | None, history: KeyedHistory) -> bool:
    """Whether a version is one that cannot have led to the checkpoint."""
    if version is None or version in history.known:
        return False
    return history.head is None or version.epoch >= history.head.epoch

"""What the runner needs of a state store: a copy of keyed records that all hosts share.

Records are in *groups*, the key groups of a stage. A group has six structures, and a *tag* with
the version of their content, see ``recovery.copies``. Each read returns the tag, too: what was read
counts only if the tag is the expected one. A group is changed only by the changes of a committed
version, on the condition of its tag.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, StoredDataError
from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.state.chain import ShardVersion


class StateStoreError(CheckpointStorageError):
    """The state store is not reachable, or is out of memory."""

    @override
    def __str__(self) -> str:
        return f"the state store at {self.place} cannot be read or written: {self.problem}"


class OvertakenError(StoredDataError):
    """The state store is ahead of the checkpoint.

    Another driver has continued the pipeline, or the checkpoint was set back.

    Args:
        place: The address of the store.
        problem: Which group is at which version.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    @override
    def __str__(self) -> str:
        return f"the state store at {self.place} is ahead of the checkpoint: {self.problem}"


class Structure(enum.Enum):
    """A structure of a group."""

    CLOCK = b"c"  # due times in processing time: members in the order of bytes
    EVENT = b"e"  # likewise in event time
    HOLDS = b"h"  # likewise, of the output watermark
    PACKS = b"k"  # packs by user key
    OUTLYING = b"o"  # values of outlying records, in the order of their names; of long ones,
    PIECES = b"p"  # the first pieces are there, and the others are here: see ``pieces``

    __hash__ = object.__hash__  # that of ``Enum`` is Python code; these are keys of dicts


INDEXES = (Structure.CLOCK, Structure.EVENT, Structure.HOLDS)
SLICED = (*INDEXES, Structure.PACKS, Structure.OUTLYING)
"""The structures of deltas, in the order in which slices go through them."""


class Change(NamedTuple):
    """A change of an entry. It is absolute: to make it twice is to make it once.

    With an outlying record, the store changes its pieces: it removes those that the new value does
    not have.

    Attributes:
        structure: The structure of the entry.
        name: The name of the entry; in an index, its member.
        value: Its new value, empty in an index; None: it is removed.
    """

    structure: Structure
    name: bytes
    value: bytes | None


class Opened(NamedTuple):
    """A group as it is opened.

    Attributes:
        tag: Its tag.
        sizes: The number of entries of each structure.
        firsts: The first member of each index that is not empty.
    """

    tag: GroupTag
    sizes: Mapping[Structure, int]
    firsts: Mapping[Structure, bytes]


class Packs(NamedTuple):
    """Reads packs by user keys."""

    group: int
    names: Sequence[bytes]


class Values(NamedTuple):
    """Reads outlying records, or further pieces of their values, by their names."""

    group: int
    names: Sequence[bytes]
    structure: Structure = Structure.OUTLYING


class Known(NamedTuple):
    """Reads which outlying records exist, without their values."""

    group: int
    names: Sequence[bytes]


class Names(NamedTuple):
    """Reads the names of outlying records, or members of an index, in their order.

    Attributes:
        group: The group.
        structure: ``OUTLYING``, or an index.
        start: The least name.
        end: All names are less; empty: there is no end.
        limit: The most names to return.
    """

    group: int
    structure: Structure
    start: bytes
    end: bytes
    limit: int


class PacksFrom(NamedTuple):
    """Reads some packs of a group, whatever their user keys are.

    Attributes:
        group: The group.
        cursor: That of the previous reply; 0: it begins. It is void if another server replies.
    """

    group: int
    cursor: int


Read: TypeAlias = Packs | Values | Known | Names | PacksFrom


class Reply(NamedTuple):
    """What was read.

    Attributes:
        tag: The tag of the group at that moment.
        values: Of ``Packs`` and ``Values``: for each name the value, or None; of ``Known``
            likewise, but an empty value. Of ``Names``: the names. Of ``PacksFrom``: names
            and values in turn; a pack may come twice.
        cursor: Of ``PacksFrom``: for the next read; 0: there are no more packs.
    """

    tag: GroupTag
    values: Sequence[bytes | None]
    cursor: int = 0


class Chunk(NamedTuple):
    """Some of the changes that bring a group to a later version.

    The chunks of a version are the same in all attempts, in ``is_direct`` mode and otherwise.

    Attributes:
        group: The group.
        expected: The version at which the group is; None: it is empty.
        version: The version to which all chunks together bring it.
        is_direct: Whether the chunks have only the changes since the previous version.
        number: The number of the chunk, from 0. It is accepted after all chunks before it.
        is_last: Whether it is the last chunk, after which the version is complete.
        changes: The changes.
    """

    group: int
    expected: ShardVersion | None
    version: ShardVersion
    is_direct: bool
    number: int
    is_last: bool
    changes: Sequence[Change]


class KeyStore(Protocol):
    """The groups of one stage in a state store. Threads: one at a time.

    All methods raise ``StateStoreError`` if the store does not work.

    Attributes:
        place: The address of the store, for messages.
    """

    place: str

    def check_known(self) -> None:
        """Check that the server knows the namespace, which the driver has claimed there.

        It does not if it has lost its data, or if this host reaches another server than the driver.
        The driver claims the namespace again before it repeats an epoch.
        """
        ...

    def open(self, groups: Sequence[int]) -> Sequence[Opened]:
        """Return tags, sizes and first members of groups."""
        ...

    def read(self, reads: Sequence[Read]) -> Sequence[Reply]:
        """Read parts of groups, each with the tag that its group has at that moment."""
        ...

    def apply(self, chunks: Sequence[Chunk]) -> Sequence[bool]:
        """Apply chunks in order; return which of them were accepted.

        A chunk is accepted if its version is complete already; or if the group is at the expected
        version, no other version is being applied that is not older, and the chunks before it
        have been accepted.
        """
        ...

    def install(self, group: int, version: ShardVersion | None) -> "Installation":
        """Begin to replace a group by other content.

        Args:
            group: The group.
            version: The version of the content; None: the group becomes empty, and has no tag.
        """
        ...

    def drop(self, groups: Sequence[int]) -> None:
        """Remove groups."""
        ...


class Installation(Protocol):
    """New content of a group, which nobody sees until it is complete."""

    def add(self, changes: Sequence[Change]) -> None:
        """Make changes of the new content."""
        ...

    def finish(self) -> None:
        """Replace the group, unless it has become as new meanwhile.

        Raises:
            StateStoreError: Some of the new content is lost.
        """
        ...

    def abandon(self) -> None:
        """Remove the new content."""
        ...

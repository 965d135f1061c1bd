"""The interface of stores for user state and timers: operations of the Fn API on addresses.

The embedded harness and the state service of the remote one ask the same backends,
through ``state.requests``.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from beam_spark_runner.semantics.timers import Domain


class Cell(NamedTuple):
    """One state of one key and window."""

    transform: str
    state: str
    window: bytes  # encoded, nested
    key: bytes  # encoded, nested


class Bag(NamedTuple):
    """All of a bag. Value, combining and set states are bags to a runner."""

    cell: Cell


class MapKeys(NamedTuple):
    """The keys of a multimap. Cannot be appended to; clearing them clears the multimap."""

    cell: Cell


class MapValues(NamedTuple):
    """The values of one key of a multimap."""

    cell: Cell
    map_key: bytes  # encoded, nested


class MapEntries(NamedTuple):
    """A multimap as KVs of a key and an iterable of its values. Can only be read."""

    cell: Cell


class ListRange(NamedTuple):
    """The part of an ordered list with sort keys from ``start`` to before ``end``.

    What is appended brings its own sort keys: the range does not matter then.
    """

    cell: Cell
    start: int
    end: int


Address: TypeAlias = Bag | MapKeys | MapValues | MapEntries | ListRange


class Page(NamedTuple):
    """Part of what stands at an address: whole encoded elements, one after the other."""

    data: bytes
    token: bytes  # for the next page; empty at the end


class StoredTimer(NamedTuple):
    """A timer that is set, while no bundle works on its key. Times are in microseconds."""

    family: str
    tag: str  # dynamic; empty for most
    window: bytes  # encoded, nested
    domain: Domain
    fires_us: int
    hold_us: int  # event time
    pane: bytes  # encoded: of the element that set the timer


class StateBackend(Protocol):
    """Stores user state and timers. Threads: one at a time.

    What was written is read at once. An address where nothing was written is empty.

    Attributes:
        version: the one that was sealed last; 0: none was.
    """

    version: int

    def get(self, address: Address, token: bytes = b"") -> Page:
        """Read a page: the first one, or that which a ``token`` of the page before leads to.

        A reader that goes from page to page sees what was there when it began.

        Raises:
            FnApiProtocolError: the token is not one of this address, or what it leads to
                was cleared meanwhile.
        """
        ...

    def append(self, address: Address, data: bytes) -> None:
        """Add encoded elements, one after the other, at the end; to a list by sort key.

        Raises:
            FnApiProtocolError: nothing can be added at such an address.
        """
        ...

    def clear(self, address: Address) -> None:
        """Remove all that stands at the address.

        Raises:
            FnApiProtocolError: such an address cannot be cleared.
        """
        ...

    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        """Return the timers of a key in a transform, in the order in which they were set.

        Args:
            transform: id.
            key: encoded, nested.
        """
        ...

    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """Store timers in place of all that were stored for the transform and the key."""
        ...

    def drop(self, key: bytes) -> None:
        """Remove all cells and timers of a key."""
        ...

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """Remove all cells that a key has in a window and a transform; not its timers.

        Args:
            transform: id.
            window: encoded, nested.
            key: encoded, nested.
        """
        ...

    def seal(self, version: int) -> None:
        """End a version: what was changed since the version before belongs to this one.

        Args:
            version: greater than all before.
        """
        ...


def pages(store: StateBackend, address: Address) -> Iterator[bytes]:
    """Yield what stands at an address, page by page; see ``StateBackend.get``."""
    page = store.get(address)
    yield page.data
    while page.token:
        page = store.get(address, page.token)
        yield page.data

"""The interface of backends for user state and timers, with the operations of the Fn API.

The embedded harness and the state service of the remote one use the same backends,
through ``state.requests``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from beam_spark_runner.semantics.timers import Domain

ResultT = TypeVar("ResultT")
ReadT = TypeVar("ReadT")


class Cell(NamedTuple):
    """One state of one key and window."""

    transform: str
    state: str
    window: bytes  # encoded, nested
    key: bytes  # encoded, nested


class Bag(NamedTuple):
    """A whole bag. Value, combining and set states are bags to a runner."""

    cell: Cell


class MapKeys(NamedTuple):
    """The keys of a multimap. They cannot be appended to; clearing them clears the multimap."""

    cell: Cell


class MapValues(NamedTuple):
    """The values of one key of a multimap."""

    cell: Cell
    map_key: bytes  # encoded, nested


class MapEntries(NamedTuple):
    """A multimap as KVs of a key and an iterable of its values. It can only be read."""

    cell: Cell


class ListRange(NamedTuple):
    """The entries of an ordered list whose sort keys are in ``[start, end)``.

    An append ignores the range, because the entries contain their sort keys.
    """

    cell: Cell
    start: int
    end: int


Address: TypeAlias = Bag | MapKeys | MapValues | MapEntries | ListRange


class Page(NamedTuple):
    """Part of the content of an address: the concatenated encodings of whole elements."""

    data: bytes
    token: bytes  # for the next page; empty at the end


class StoredTimer(NamedTuple):
    """A timer as it is stored while no bundle processes its key. Times are in microseconds."""

    family: str
    tag: str  # dynamic; empty for most
    window: bytes  # encoded, nested
    domain: Domain
    fires_us: int
    hold_us: int  # event time
    pane: bytes  # encoded: of the element that set the timer


class StateBackend(Protocol):
    """Stores user state and timers. Threads: one at a time.

    Reads see all earlier writes. An address is empty until something is written there.

    Attributes:
        version: The version that was sealed last; 0 before the first one.
    """

    version: int

    def get(self, address: Address, token: bytes = b"") -> Page:
        """Read the first page, or the one that the ``token`` of the previous page refers to.

        A read of several pages returns the elements that were there at its first page.

        Raises:
            FnApiProtocolError: The token is not one of this address, or is void, because the
                state was cleared, or an ordered list appended to, since the first page.
        """
        ...

    def append(self, address: Address, data: bytes) -> None:
        """Add concatenated encoded elements at the end; in an ordered list, by sort key.

        A key of a multimap is there from then on, even if its values have no bytes: Java's SDK
        requests a SetState as a multimap of such values.

        Raises:
            FnApiProtocolError: An address of this kind cannot be appended to.
        """
        ...

    def clear(self, address: Address) -> None:
        """Remove the content of an address.

        Raises:
            FnApiProtocolError: An address of this kind cannot be cleared.
        """
        ...

    def replace_values(self, address: MapValues, data: bytes) -> None:
        """Replace the values of a key of a multimap by others, or add the key.

        Args:
            address: The values.
            data: The new values, encoded, with at least one byte.
        """
        ...

    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        """Return the timers of a key in a transform, in the order in which they were set.

        Args:
            transform: The id of the transform.
            key: The key, encoded and nested.
        """
        ...

    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """Replace all timers of a key in a transform."""
        ...

    def drop(self, key: bytes) -> None:
        """Remove all cells and timers of a key."""
        ...

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """Remove all cells that a key has in a window and a transform, but not its timers.

        Args:
            transform: The id of the transform.
            window: The window, encoded and nested.
            key: The key, encoded and nested.
        """
        ...

    def seal(self, version: int) -> None:
        """End a version, which consists of all changes since the previous one.

        Args:
            version: The number of the version, greater than all earlier ones.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer(Generic[ResultT, ReadT]):
    """What has become of a request.

    Attributes:
        result: Its result.
        missed: What it has to read, so that it has no result yet; empty: it has.
    """

    result: ResultT | None
    missed: Sequence[ReadT] = ()


class Batches(Protocol):
    """Executes requests of many keys with few round trips. ``RemoteRecords`` does."""

    def attempt(self, request: Callable[[], ResultT]) -> Answer[ResultT, Any]:
        """Execute a request on what is loaded. Its changes count only if that is enough.

        Args:
            request: Uses the backend. It may be executed again with what was missing.
        """
        ...

    def load(self, missed: Sequence[Any]) -> None:
        """Load what requests have missed, in one round trip."""
        ...


def pages(store: StateBackend, address: Address) -> Iterator[bytes]:
    """Yield the content of an address, page by page; see ``StateBackend.get``."""
    page = store.get(address)
    yield page.data
    while page.token:
        page = store.get(address, page.token)
        yield page.data

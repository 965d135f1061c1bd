"""Records in flight: those that are processed, or wait for their key.

A record of a declarative step waits for requests of its state. Meanwhile records of other keys are
processed; those of the same key begin one after another, each when the one before it is done.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from beam_spark_runner.core.flight_limits import FlightLimits

KeyT = TypeVar("KeyT")
LoggedKeyT = TypeVar("LoggedKeyT", contravariant=True)
ItemT = TypeVar("ItemT")
RequestT = TypeVar("RequestT")


class Log(Protocol[LoggedKeyT, ItemT]):
    """Keeps items that exceed what is in memory."""

    def append(self, key: LoggedKeyT, item: ItemT, size: int) -> None:
        """Add an item at the end of those of a key."""
        ...

    def take(self, key: LoggedKeyT) -> Iterable[tuple[ItemT, int]]:
        """Remove the first items of a key, at least one, and return them with their sizes."""
        ...


class _OfKey(Generic[ItemT]):
    """The items of a key, in their order: the one that has begun, those in memory, in the log."""

    def __init__(self) -> None:
        self.begun: tuple[ItemT, int] | None = None
        self.references = 0  # of the item that has begun: its code, requests and callbacks
        self.is_kept = False  # whether it continues once nothing refers to it
        self.waiting: deque[tuple[ItemT, int]] = deque()
        self.logged = 0


class Left(NamedTuple, Generic[KeyT, ItemT]):
    """What is left of a key in flight.

    Attributes:
        key: The key.
        begun: The item that has begun and waits for requests; None: none has.
        waiting: The items that have not begun, in their order.
    """

    key: KeyT
    begun: ItemT | None
    waiting: Iterable[ItemT]


class InFlight(Generic[KeyT, ItemT, RequestT]):
    """Decides which records begin, and which requests are executed together.

    It has no clock, and calls nothing but the log. The caller takes items from ``begin`` and runs
    their code, and tells of their requests. Each of these refers to the item, and so does its code:
    ``returned`` ends one of the references. What is not a record is an item, too: an *advance*
    fires the timers of a key, one by one, by being kept until none is left.

    Everything that is in flight has a place, but only new records wait for one, since ``is_full``
    is a question of the caller before it reads on. So nothing that a key waits for can wait for
    room.

    After ``stop``, only items that have begun continue. What waits then can be taken out, by
    ``withdraw`` for requests and by ``left`` for items, and be added to another object later.

    Args:
        limits: See ``FlightLimits``.
        log: Keeps records of keys that have very many.

    Example:
        >>> from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
        >>> flights = InFlight(FLIGHT_LIMITS, {})  # of few records, none is logged
        >>> flights.add("key", "first", 1)
        >>> flights.add("key", "second", 1)
        >>> flights.begin()
        ('key', 'first')
        >>> flights.refer("key")  # it requests something
        >>> flights.wait("request", now_us=0)
        >>> flights.returned("key")  # its code
        >>> flights.begin(), flights.batch()
        (None, ['request'])
        >>> flights.returned("key")  # the callbacks of the request
        >>> flights.begin()
        ('key', 'second')
    """

    def __init__(self, limits: FlightLimits, log: Log[KeyT, ItemT]) -> None:
        self._limits, self._log = limits, log
        self._keys: dict[KeyT, _OfKey[ItemT]] = {}
        self._ready: deque[KeyT] = deque()  # keys whose next item may begin, or continue
        self._requests: deque[tuple[int, RequestT]] = deque()  # with the times since they wait
        self._records = self._size = 0  # in memory
        self._logged_size = 0
        self._is_stopped = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._keys

    @property
    def is_full(self) -> bool:
        """Whether no more records should be added until something is done."""
        return self._records >= self._limits.records or self._size >= self._limits.size

    @property
    def size(self) -> int:
        """About how many bytes everything in flight takes, the log included."""
        return self._size + self._logged_size

    def has(self, key: KeyT) -> bool:
        """Whether anything of a key is in flight."""
        return key in self._keys

    def add(self, key: KeyT, item: ItemT, size: int) -> None:
        """Add an item behind all others of its key.

        Args:
            key: The key.
            item: The item.
            size: About how many bytes of memory it takes.
        """
        of_key = self._keys.get(key)
        if of_key is None:
            of_key = self._keys[key] = _OfKey()
            self._ready.append(key)
        if of_key.logged or len(of_key.waiting) >= self._limits.of_key:
            of_key.logged += 1
            self._logged_size += size
            self._log.append(key, item, size)
        else:
            self._keep(of_key, item, size)

    def begin(self) -> tuple[KeyT, ItemT] | None:
        """Return an item that begins now, or one that was kept; None: all wait, or there are none.

        The code of the item refers to it until ``returned``.
        """
        while self._ready:
            key = self._ready.popleft()
            of_key = self._keys[key]
            if of_key.begun is None:
                if self._is_stopped:
                    continue
                of_key.begun = of_key.waiting.popleft()
            of_key.references, of_key.is_kept = 1, False
            return key, of_key.begun[0]
        return None

    def refer(self, key: KeyT) -> None:
        """Add a reference to the item of a key that has begun: that of a request."""
        self._keys[key].references += 1

    def returned(self, key: KeyT, *, keeps: bool = False) -> None:
        """End a reference: code has returned, or the callbacks of a request have.

        Args:
            key: The key.
            keeps: Whether the item continues once nothing refers to it: ``begin`` returns it again.
        """
        of_key = self._keys[key]
        of_key.references -= 1
        of_key.is_kept |= keeps
        if of_key.references:
            return
        if not of_key.is_kept:
            assert of_key.begun is not None
            self._records -= 1
            self._size -= of_key.begun[1]
            of_key.begun = None
            if of_key.logged and not of_key.waiting:
                self._take_logged(key, of_key)
            if not of_key.waiting:
                del self._keys[key]
                return
        self._ready.appendleft(key)  # what the key has loaded is there still

    def wait(self, request: RequestT, now_us: int) -> None:
        """Have a request wait for a batch.

        Args:
            request: The request.
            now_us: The time of a monotonic clock.
        """
        self._requests.append((now_us, request))

    def is_batch_due(self, now_us: int) -> bool:
        """Whether requests should be executed although further records come."""
        requests, limits = self._requests, self._limits
        return len(requests) >= limits.batch or (
            bool(requests) and now_us - requests[0][0] >= limits.wait_us
        )

    def batch(self) -> list[RequestT]:
        """Return the requests that are executed together, the oldest ones; none if none waits."""
        count = min(len(self._requests), self._limits.batch)
        return [self._requests.popleft()[1] for _ in range(count)]

    def stop(self) -> None:
        """Have no further item begin."""
        self._is_stopped = True

    def put_back(self, key: KeyT) -> None:
        """Have an item that has begun wait again: its code has done nothing yet.

        Args:
            key: The key of the item, whose requests were withdrawn.
        """
        of_key = self._keys[key]
        assert of_key.begun is not None
        of_key.waiting.appendleft(of_key.begun)
        of_key.begun, of_key.references = None, 0
        self._ready.append(key)

    def withdraw(self, which: Callable[[RequestT], bool]) -> list[RequestT]:
        """Take out requests that wait for a batch, the oldest ones first.

        Args:
            which: Whether a request is one of them.
        """
        withdrawn: list[RequestT] = []
        others: deque[tuple[int, RequestT]] = deque()
        for each in self._requests:
            if which(each[1]):
                withdrawn.append(each[1])
            else:
                others.append(each)
        self._requests = others
        return withdrawn

    def left(self) -> Iterator[Left[KeyT, ItemT]]:
        """Take out all items, key by key; nothing is in flight afterwards. Only after ``stop``."""
        assert self._is_stopped
        for key, of_key in self._keys.items():
            begun = None if of_key.begun is None else of_key.begun[0]
            yield Left(key, begun, self._waiting(key, of_key))
        self._keys.clear()
        self._ready.clear()
        self._requests.clear()
        self._records = self._size = self._logged_size = 0

    def _waiting(self, key: KeyT, of_key: _OfKey[ItemT]) -> Iterator[ItemT]:
        while of_key.waiting or of_key.logged:
            if not of_key.waiting:
                self._take_logged(key, of_key)
            yield of_key.waiting.popleft()[0]

    def _take_logged(self, key: KeyT, of_key: _OfKey[ItemT]) -> None:
        for item, size in self._log.take(key):
            of_key.logged -= 1
            self._logged_size -= size
            self._keep(of_key, item, size)

    def _keep(self, of_key: _OfKey[ItemT], item: ItemT, size: int) -> None:
        of_key.waiting.append((item, size))
        self._records += 1
        self._size += size

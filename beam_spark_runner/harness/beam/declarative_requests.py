"""Requests of the states of declarative steps, which wait for records of a state store."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from beam_spark_runner.state.backend import Batches

_TRIES = 12  # with a round trip each; then a request reads for itself, one record after another
_ITERATED = 1_000  # items of an iterable that are read before callbacks get it


class StateRequest:
    """An access of a state that is not done.

    Args:
        key: The key in flight whose record has made it.
        record: The record.
        name: The name of the state.
        access: Accesses the state.
        future: The future of the result.
        read: See ``transforms.declarative.processed.Requests``.

    Attributes:
        missed: What is to be read before it is tried again.
    """

    __slots__ = (
        *("_access", "_tries"),
        *("future", "key", "missed", "name", "read", "record"),
    )

    def __init__(
        self,
        key: Any,
        record: Any,
        name: str,
        access: Callable[[], Any],
        future: Any,
        read: Any,
    ) -> None:
        self.key, self.record, self.name, self.future = key, record, name, future
        self.read = read
        self._access = access
        self._tries = 0
        self.missed: Sequence[Any] = ()

    def is_done(self, batches: Batches) -> tuple[Any] | None:
        """Try it; return the result if it is done, else None, and set ``missed``."""
        self._tries += 1
        if self._tries > _TRIES:
            return (self._access(),)
        answer = batches.attempt(self._result)
        self.missed = answer.missed
        return None if answer.missed else (answer.result,)

    def _result(self) -> Any:
        result = self._access()
        if self.read is not None and self.read.is_lazy:
            for _ in islice(result, _ITERATED):
                pass
        return result


class StateQueue:
    """The requests of one state of a record that are not done. Reads may overtake each other."""

    def __init__(self) -> None:
        self._reads = 0  # that have been tried
        self._has_change = False  # whether a change has been tried
        self._behind: deque[StateRequest] = deque()

    def may_try(self, request: StateRequest) -> bool:
        """Whether a request may be tried before all that is here is done."""
        return not (self._behind or self._has_change or (self._reads and request.read is None))

    def put_behind(self, request: StateRequest) -> None:
        """Have a request wait for the others."""
        self._behind.append(request)

    @property
    def has_behind(self) -> bool:
        """Whether other requests wait for one that was tried."""
        return bool(self._behind)

    def tried(self, request: StateRequest) -> None:
        """Note that a request has been tried, and is not done."""
        if request.read is not None:
            self._reads += 1
        else:
            self._has_change = True

    def done(self, request: StateRequest) -> None:
        """Note that a request of ``tried`` is done."""
        if request.read is not None:
            self._reads -= 1
        else:
            self._has_change = False

    def next(self) -> StateRequest | None:
        """Return a request that may be tried now, and was put behind; None: there is none."""
        if not self._behind or self._has_change:
            return None
        if self._reads and self._behind[0].read is None:
            return None
        return self._behind.popleft()


class CodeRequest:
    """The runner's own accesses of a key, between which no user code runs.

    Args:
        key: The key in flight.
        missed: What is to be read before its code continues.
    """

    __slots__ = ("key", "missed")

    def __init__(self, key: Any, missed: Sequence[Any]) -> None:
        self.key, self.missed = key, missed


def executed(batches: Batches, accesses: Iterable[Callable[[], Any]]) -> Iterator[Sequence[Any]]:
    """Make accesses that do not depend on each other; yield while they have to wait.

    Yields:
        What has to be read before this continues.
    """
    left = [*accesses]
    for _ in range(_TRIES):
        missed: list[Any] = []
        again = []
        for access in left:
            answer = batches.attempt(access)
            if answer.missed:
                again.append(access)
                missed += answer.missed
        if not again:
            return
        yield missed
        left = again
    for access in left:
        access()

"""What all instances of a DoFn in one process share: clients of Kafka, which cost to open."""

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """Something that is open."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
_lock = threading.Lock()
_all: dict[str, tuple[Any, int]] = {}  # by id, with the number of users


def shared(id_: str, make: Callable[[], T]) -> T:
    """Return what is shared by an id, made when it is asked for first; the caller is a user."""
    with _lock:
        found, users = _all.get(id_) or (make(), 0)
        _all[id_] = found, users + 1
        return found


def release(id_: str) -> None:
    """Close what is shared when the last of its users says so."""
    with _lock:
        found, users = _all.pop(id_)
        if users > 1:
            _all[id_] = found, users - 1
            return
    found.close()

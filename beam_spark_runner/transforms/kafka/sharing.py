"""Objects that all instances of a DoFn in one process share, such as pools of Kafka clients."""

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """An object that is closed when its last user releases it."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
_lock = threading.Lock()
_all: dict[str, tuple[Any, int]] = {}  # objects by id, with the number of users


def shared(id_: str, make: Callable[[], T]) -> T:
    """Return the object of an id, which the first user makes; each user must call ``release``."""
    with _lock:
        value, users = _all.get(id_) or (make(), 0)
        _all[id_] = value, users + 1
        return value


def release(id_: str) -> None:
    """Release the object of an id; the call of its last user closes it."""
    with _lock:
        value, users = _all.pop(id_)
        if users > 1:
            _all[id_] = value, users - 1
            return
    value.close()

"""Whether a server lives, and whether it is ready: for probes of Kubernetes and Docker."""

import threading
from collections.abc import Callable


class Health:
    """What a server says of itself. Threads: any.

    Args:
        why: Why it is not ready yet; empty: it is ready.
    """

    def __init__(self, why: str = "") -> None:
        self._lock = threading.Lock()
        self._waits_for, self._loss = why, ""
        self._watch: Callable[[bool], None] = lambda is_ready: None

    @property
    def why_not_alive(self) -> str:
        """Why a restart would help; empty: the server lives."""
        return self._loss

    @property
    def why_not_ready(self) -> str:
        """Why no job can run now; empty: the server is ready."""
        return self._loss or self._waits_for

    def note_waiting(self, why: str) -> None:
        """Note that the server is not ready.

        Args:
            why: The reason, for people.
        """
        self._set(why, self._loss)

    def note_ready(self) -> None:
        """Note that the server accepts and runs jobs."""
        self._set("", self._loss)

    def note_loss(self, why: str) -> None:
        """Note that the server does not live any more, which is final.

        Args:
            why: The reason, for people.
        """
        self._set(self._waits_for, why)

    def follow(self, watch: Callable[[bool], None]) -> None:
        """Call a function now and at each change, with whether the server is ready."""
        with self._lock:
            self._watch = watch
            watch(not self.why_not_ready)

    def _set(self, waits_for: str, lost: str) -> None:
        with self._lock:
            self._waits_for, self._loss = waits_for, lost
            self._watch(not self.why_not_ready)

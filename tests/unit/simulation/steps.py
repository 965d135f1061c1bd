"""Work that goes on a step at a time, in a greenlet, and may be left where it is."""

from collections.abc import Callable
from contextlib import suppress

import greenlet

from tests.unit.simulation.storage import KilledError


class Steps:
    """Some work, and how far it has come. What it raises comes out of ``go_on``.

    Args:
        work: calls ``pause`` between two steps.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._greenlet = greenlet.greenlet(work, _world())
        self._is_killed = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do."""
        return self._is_killed or self._greenlet.dead

    def go_on(self) -> None:
        """Continue to the next pause, or the end."""
        self._greenlet.switch()

    def leave(self) -> None:
        """Leave the work where it is: nothing of it is done any more, not even cleaning up."""
        self._is_killed = True

    def kill(self) -> None:
        """End the work where it is."""
        self._is_killed = True
        if self._greenlet:
            with suppress(KilledError):
                self._greenlet.throw(KilledError)


def pause() -> None:
    """Let the world decide what happens before the work continues that has called this."""
    _world().switch()


def _world() -> greenlet.greenlet:
    """Return the greenlet in which no such work is done."""
    found = greenlet.getcurrent()
    while found.parent is not None:
        found = found.parent
    return found

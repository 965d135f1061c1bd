"""Hands the records of a partition to a function that runs in the bundle's thread, in turns.

A greenlet has a stack of its own, and no thread has to wake another one to switch to it.
"""

import contextvars
import itertools
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import greenlet

from beam_spark_runner.transforms.full_window.records import (
    CAPACITY,
    AbandonedPartitionError,
    Records,
)

_LOGGER = logging.getLogger(__name__)
_END = object()


class SwitchedHandover:
    """A ``Handover`` between two greenlets.

    The function has the thread until it wants records that are not there, or has made many
    results. What it raises is raised where the bundle waits for it.

    Args:
        run: makes results from the records, which it may leave unread.
    """

    def __init__(self, run: Callable[[Records], Iterable[Any]]) -> None:
        self._run = run
        self._block: list[Any] | None = None  # records that the function has not begun with
        self._made: deque[Any] = deque()
        self._has_all_records = False
        self._function = greenlet.greenlet(self._work)
        self._function.gr_context = contextvars.copy_context()  # as `setup` has left it
        self._bundle = greenlet.getcurrent()

    def feed(self, records: list[Any]) -> Iterator[list[Any]]:
        """See ``Handover.feed``."""
        self._block = records
        while self._has_unseen() and not self._function.dead:
            yield from self._results()

    def end(self) -> Iterator[list[Any]]:
        """See ``Handover.end``."""
        self._has_all_records = True
        while not self._function.dead:
            yield from self._results()

    def abandon(self) -> bool:
        """See ``Handover.abandon``."""
        try:
            self._function.throw(AbandonedPartitionError)
        except AbandonedPartitionError:
            pass
        except greenlet.error:  # this is not the bundle's thread
            return False
        except Exception:
            _LOGGER.debug("while the function of map_partition was ended", exc_info=True)
        return bool(self._function.dead)

    def _has_unseen(self) -> bool:
        return self._block is not None

    def _results(self) -> Iterator[list[Any]]:
        """Let the function go on, and yield what it has made."""
        self._function.switch()
        if self._made:
            results = [*self._made]
            self._made.clear()
            yield results

    # From here on: the function's greenlet.

    def _work(self) -> None:
        results = self._run(Records(iter(self._next_block, None)))
        several = iter(results)
        try:
            # What was made is there for the bundle, whenever the function waits for records.
            while (result := next(several, _END)) is not _END:
                self._made.append(result)
                self._made.extend(itertools.islice(several, CAPACITY - 1))
                if len(self._made) >= CAPACITY:
                    self._bundle.switch()
        finally:
            if isinstance(results, Generator):  # it may stand in the middle of user code
                results.close()

    def _next_block(self) -> list[Any] | None:
        while self._block is None and not self._has_all_records:
            self._bundle.switch()
        block, self._block = self._block, None
        return block

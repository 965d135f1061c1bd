"""Runs the function of ``map_partition`` in a greenlet of the bundle's thread.

A greenlet has its own stack, and switching to it does not need to wake another thread.
"""

import contextvars
import itertools
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import greenlet

from beam_spark_runner.transforms.full_window.partition_records import (
    CAPACITY,
    AbandonedPartitionError,
    PartitionRecords,
)

_LOGGER = logging.getLogger(__name__)
_END = object()


class SwitchedHandover:
    """A ``Handover`` between two greenlets.

    The function runs until it needs records that have not arrived, or has made many results. Its
    errors are raised in the bundle.

    Args:
        run: The function of the records, which returns the results. It may leave records unread.
    """

    def __init__(self, run: Callable[[PartitionRecords], Iterable[Any]]) -> None:
        self._run = run
        self._block: list[Any] | None = None  # records that the function has not begun to read
        self._output: deque[Any] = deque()
        self._has_all_records = False
        self._function = greenlet.greenlet(self._work)
        self._function.gr_context = contextvars.copy_context()  # with what ``setup`` has set
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
        """Resume the function, and yield the results that it has made."""
        self._function.switch()
        if self._output:
            results = [*self._output]
            self._output.clear()
            yield results

    # From here on: the function's greenlet.

    def _work(self) -> None:
        results = self._run(PartitionRecords(iter(self._next_block, None)))
        several = iter(results)
        try:
            # Results are in ``_output`` at once, since the function may next wait for records.
            while (result := next(several, _END)) is not _END:
                self._output.append(result)
                self._output.extend(itertools.islice(several, CAPACITY - 1))
                if len(self._output) >= CAPACITY:
                    self._bundle.switch()
        finally:
            if isinstance(results, Generator):  # runs ``finally`` blocks of unfinished user code
                results.close()

    def _next_block(self) -> list[Any] | None:
        while self._block is None and not self._has_all_records:
            self._bundle.switch()
        block, self._block = self._block, None
        return block

"""Runs the function of ``map_partition`` in its own thread.

Each block of records costs two switches between threads, but SDK harnesses need no further package.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from apache_beam.runners.worker import statesampler

from beam_spark_runner.transforms.full_window.partition_records import (
    CAPACITY,
    AbandonedPartitionError,
    PartitionRecords,
)

_JOIN_S = 10.0  # the longest time for which a bundle waits for the end of an abandoned function
_LOOK_EVERY_S = 1.0  # an exception that another thread raises in this one comes only between waits


class ThreadedHandover:
    """A ``Handover`` between two threads.

    Threads: the bundle's thread calls the methods. ``run`` runs in its own thread, which ends
    with it, or at its next record or result after ``abandon``.

    Args:
        run: The function of the records, which returns the results. It may leave records unread.
    """

    def __init__(self, run: Callable[[PartitionRecords], Iterable[Any]]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._for_bundle = threading.Condition(self._lock)  # room, results, or the end
        self._for_function = threading.Condition(self._lock)  # records, room, or the end
        self._records: list[Any] = []
        self._in_hand = 0  # size of the block that the function reads now
        self._own_results: list[Any] = []  # results that only the function's thread uses
        self._results: list[Any] = []  # results for the bundle
        self._has_all_records = False
        self._is_abandoned = False
        self._is_done = False
        self._error: BaseException | None = None
        self._tracker = _tracker_of_this_step()
        bundle = threading.current_thread().name
        # Stacks of stuck bundles include all threads whose names begin with that of the bundle's.
        self._thread = threading.Thread(
            target=self._work, name=f"{bundle}-map-partition", daemon=True
        )
        self._thread.start()

    def feed(self, records: list[Any]) -> Iterator[list[Any]]:
        """See ``Handover.feed``."""
        start = 0
        while start < len(records):
            with self._lock:
                while not (self._room() or self._results or self._is_done):
                    self._for_bundle.wait(_LOOK_EVERY_S)
                results = self._take_results()
                if self._is_done:
                    start = len(records)  # the function has returned without reading all records
                elif room := self._room():
                    self._records += records[start : start + room]
                    start += room
                    self._for_function.notify()
            if results:
                yield results

    def _room(self) -> int:
        return CAPACITY - self._in_hand - len(self._records)

    def end(self) -> Iterator[list[Any]]:
        """See ``Handover.end``."""
        with self._lock:
            self._has_all_records = True
            self._for_function.notify()
        while True:
            with self._lock:
                while not self._results and not self._is_done:
                    self._for_bundle.wait(_LOOK_EVERY_S)
                results, is_done = self._take_results(), self._is_done
            if results:
                yield results
            elif is_done:
                return

    def abandon(self) -> bool:
        """See ``Handover.abandon``."""
        with self._lock:
            self._is_abandoned = True
            self._for_function.notify()
        self._thread.join(_JOIN_S)
        return not self._thread.is_alive()

    def _take_results(self) -> list[Any]:
        """Remove and return the results for the bundle, or raise the function's error.

        The lock is held.
        """
        if self._error is not None:
            raise self._error
        results, self._results = self._results, []
        if results:
            self._for_function.notify()
        return results

    # From here on: the function's thread.

    def _work(self) -> None:
        statesampler.set_current_tracker(self._tracker)
        error: BaseException | None = None
        try:
            self._pass_on(self._run(PartitionRecords(iter(self._next_block, None))))
        except BaseException as raised:
            error = raised
        with self._lock:
            self._is_done, self._error = True, error
            self._for_bundle.notify()

    def _next_block(self) -> list[Any] | None:
        with self._lock:
            self._in_hand = 0
            # The bundle is notified only now. Earlier, the threads would run at the same time, but
            # still switch at each block, which is what takes time.
            self._put()
            while not self._records and not self._has_all_records:
                self._check_wanted()
                self._for_function.wait()
            self._check_wanted()
            block, self._records = self._records, []
            self._in_hand = len(block)
        return block or None

    def _pass_on(self, results: Iterable[Any]) -> None:
        try:
            for result in results:
                self._own_results.append(result)
                if len(self._own_results) + len(self._results) >= CAPACITY:
                    with self._lock:
                        self._put()
            with self._lock:
                self._put()
        finally:
            if isinstance(results, Generator):  # runs ``finally`` blocks of unfinished user code
                results.close()

    def _put(self) -> None:
        """Pass results to the bundle, once it has taken the earlier ones. The lock is held."""
        while self._own_results and self._results:
            self._check_wanted()
            self._for_function.wait()
        self._check_wanted()
        if self._own_results:
            self._results, self._own_results = self._own_results, []
        self._for_bundle.notify()

    def _check_wanted(self) -> None:
        if self._is_abandoned:
            raise AbandonedPartitionError


class _StepTracker:
    """Attributes the metrics of a thread to one step, whatever step the bundle's thread runs."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def current_state(self) -> Any:
        """Return the state of the step in Beam's state sampler."""
        return self._state

    def update_metric(self, typed_metric_name: Any, value: Any) -> None:
        """See Beam's ``StateSampler``."""
        container = self._state.metrics_container
        if container is not None:
            container.get_metric_cell(typed_metric_name).update(value)


def _tracker_of_this_step() -> _StepTracker | None:
    tracker = statesampler.get_current_tracker()
    return None if tracker is None else _StepTracker(tracker.current_state())

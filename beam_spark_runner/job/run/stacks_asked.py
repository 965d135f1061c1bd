"""Collects the stacks that workers send when they are asked."""

import threading
from collections.abc import Iterable, Mapping


class StacksAsked:
    """The requests for stacks of one job, and the answers. Threads: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last = 0
        self._answers: dict[int, dict[str, str]] = {}  # of those that are waited for

    def begin(self) -> int:
        """Begin a request; return its number."""
        with self._changed:
            self._last += 1
            self._answers[self._last] = {}
            return self._last

    def answered(self, worker: str, request: int, text: str) -> None:
        """Note the answer of a worker, unless it comes too late."""
        with self._changed:
            if request in self._answers:
                self._answers[request][worker] = text
                self._changed.notify_all()

    def wait(
        self, request: int, asked: Iterable[str], timeout_s: float
    ) -> Mapping[str, str | None]:
        """Wait for the answers to a request, and end it.

        Args:
            request: Its number.
            asked: The workers that were asked.
            timeout_s: How long they may take.

        Returns:
            The answers by worker, in the order of their names. None: there is none.
        """
        workers = sorted(asked)
        with self._changed:
            self._changed.wait_for(lambda: self._answers[request].keys() >= set(workers), timeout_s)
            answers = self._answers.pop(request)
        return {worker: answers.get(worker) for worker in workers}

"""Rows that the first task of a segment will not read, on their way to the driver."""

import queue
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    """Rows that a task will not read, while one of its elements takes long.

    Attributes:
        run: The number of the Spark job.
        level: The level of the task, counted over all segments.
        attempt: The attempt at the task.
        rows: The rows, in Arrow's stream format.
    """

    run: int
    level: int
    attempt: int
    rows: bytes


class Offers:
    """The offers of the tasks of one pipeline.

    Threads: any may ``put``; one opens and closes, another one takes.
    """

    def __init__(self) -> None:
        self._run = 0
        self._queue: queue.SimpleQueue[Offer | None] = queue.SimpleQueue()

    def open(self, run: int) -> None:
        """Accept the offers of a Spark job, and drop all others."""
        self._queue = queue.SimpleQueue()
        self._run = run

    def close(self) -> None:
        """Accept no further offers: ``take`` returns."""
        self._run = 0
        self._queue.put(None)

    def put(self, offer: Offer) -> None:
        """Add an offer, which a worker has sent."""
        if offer.run == self._run:
            self._queue.put(offer)

    def take(self) -> Offer | None:
        """Wait for an offer; return None once no more are accepted."""
        return self._queue.get()

"""Counts whether all messages of workers to the driver have arrived.

Reports arrive reliably, with the rows; messages over the backchannel may be slower, or lost with
the connection. So each report has the number of messages that were sent, for which the driver
waits for a bounded time.
"""

from collections.abc import Iterable


class MessageCounts:
    """Compares how many messages each worker has sent with how many have arrived."""

    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._gone: set[str] = set()
        self._held: dict[int, str] = {}  # accepted attempts with callbacks -> their worker
        self._tearing_down: set[str] = set()

    def expect(self, worker: str, sent: int) -> None:
        """Note that a worker had sent this many messages by the time of its report."""
        self._expected[worker] = max(sent, self._expected.get(worker, 0))

    def arrived(self, worker: str, sent: int) -> None:
        """Note that this many messages of a worker have arrived."""
        self._arrived[worker] = sent

    def gone(self, worker: str) -> None:
        """Note that the connection to a worker has ended."""
        self._gone.add(worker)

    def gone_workers(self) -> frozenset[str]:
        """Return the workers to which the connection has ended."""
        return frozenset(self._gone)

    def accepted(self, attempt: int, worker: str) -> None:
        """Note that a worker was requested to run the callbacks of an attempt."""
        self._held[attempt] = worker

    def finalized(self, attempts: Iterable[int]) -> None:
        """Note that the callbacks of attempts have run."""
        for attempt in attempts:
            self._held.pop(attempt, None)

    def ends(self, worker: str) -> None:
        """Note that a worker was notified of the end of the job, and tears down its DoFns."""
        self._tearing_down.add(worker)

    def has_torn_down(self, worker: str) -> None:
        """Note that a worker has torn down its DoFns."""
        self._tearing_down.discard(worker)

    def tearing_down(self) -> frozenset[str]:
        """Return the workers that have not reported the end of their teardown."""
        return frozenset(self._tearing_down - self._gone)

    def is_known(self, worker: str) -> bool:
        """Whether a worker has ever connected."""
        return worker in self._arrived

    def are_complete(self) -> bool:
        """Whether all messages have arrived from workers that are still connected."""
        return not self._missing() and not self.awaited_callbacks()

    def unheard(self) -> frozenset[str]:
        """Return the workers from which messages are expected and that have never connected."""
        return frozenset(worker for worker in self._missing() if not self.is_known(worker))

    def awaited_callbacks(self) -> frozenset[int]:
        """Return the attempts whose callbacks have not run yet."""
        return frozenset(
            attempt for attempt, worker in self._held.items() if worker not in self._gone
        )

    def _missing(self) -> list[str]:
        return [
            worker
            for worker, sent in self._expected.items()
            if worker not in self._gone and self._arrived.get(worker, 0) < sent
        ]

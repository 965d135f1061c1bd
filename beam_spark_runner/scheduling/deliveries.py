"""Whether all that tasks say to have sent the driver has arrived.

Reports come with the rows, and are exact; what tasks send over the backchannel travels apart, which
may be slower, or broken. So a report says how much there is to wait for, for a bounded time.
"""

from collections.abc import Iterable


class Deliveries:
    """Counts what each worker sent against what has come. Facts in, answers out."""

    def __init__(self) -> None:
        self._expected: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._gone: set[str] = set()
        self._held: dict[int, str] = {}  # accepted attempts with callbacks -> their worker
        self._tearing_down: set[str] = set()

    def expect(self, worker: str, sent: int) -> None:
        """A report says that its worker had sent so much by then."""
        self._expected[worker] = max(sent, self._expected.get(worker, 0))

    def arrived(self, worker: str, sent: int) -> None:
        """So much of it is here."""
        self._arrived[worker] = sent

    def gone(self, worker: str) -> None:
        """Nothing more comes from a worker, and nothing reaches it."""
        self._gone.add(worker)

    def accepted(self, attempt: int, worker: str) -> None:
        """A worker was asked to run the callbacks of an attempt."""
        self._held[attempt] = worker

    def finalized(self, attempts: Iterable[int]) -> None:
        """Their callbacks have run."""
        for attempt in attempts:
            self._held.pop(attempt, None)

    def ends(self, worker: str) -> None:
        """A worker was notified that the job has ended; it tears down the DoFns that it has."""
        self._tearing_down.add(worker)

    def has_torn_down(self, worker: str) -> None:
        """It has."""
        self._tearing_down.discard(worker)

    def tearing_down(self) -> frozenset[str]:
        """Return the workers that have yet to say that they have torn down."""
        return frozenset(self._tearing_down - self._gone)

    def is_known(self, worker: str) -> bool:
        """Whether a worker has said anything."""
        return worker in self._arrived

    def are_complete(self) -> bool:
        """Whether nothing is missing, of workers that are not gone."""
        return not self._missing() and not self.awaited_callbacks()

    def unheard(self) -> frozenset[str]:
        """Return the workers that should have said something, and have not even called."""
        return frozenset(worker for worker in self._missing() if not self.is_known(worker))

    def awaited_callbacks(self) -> frozenset[int]:
        """Return the attempts whose callbacks run, or wait to be run."""
        return frozenset(
            attempt for attempt, worker in self._held.items() if worker not in self._gone
        )

    def _missing(self) -> list[str]:
        return [
            worker
            for worker, sent in self._expected.items()
            if worker not in self._gone and self._arrived.get(worker, 0) < sent
        ]

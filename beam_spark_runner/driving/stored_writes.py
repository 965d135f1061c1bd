"""Commits the writes of tables: before each begins, and after it has ended."""

from collections.abc import Callable
from dataclasses import replace

from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.recovery.batch_manifest import BatchManifest
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.begun_writes import BegunWrite


class StoredWrites:
    """See ``WriteStore``.

    Args:
        start: the start of this driver.
        commit: commits what replaces its manifest.
    """

    def __init__(self, start: BatchStart, commit: Callable[[BatchManifest], None]) -> None:
        self._start, self._commit = start, commit

    @property
    def start(self) -> int:
        """See ``WriteStore``."""
        return self._start.number

    def begun(self, segment: SegmentId) -> BegunWrite | None:
        """See ``WriteStore``."""
        return self._start.manifest.begun.get(int(segment))

    def begin(self, segment: SegmentId, make: Callable[[], BegunWrite]) -> BegunWrite:
        """See ``WriteStore``. What the first start has found before the write stays what counts."""
        earlier = self.begun(segment)
        if earlier is not None:
            return earlier
        new, last = make(), self._start.manifest
        self._commit(replace(last, begun={**last.begun, int(segment): new}))
        return new

    def check_fence(self) -> None:
        """See ``WriteStore``."""
        self._start.check_fence()

    def end(self, segment: SegmentId, result: bytes) -> None:
        """See ``WriteStore``."""
        last, number = self._start.manifest, int(segment)
        if last.done.get(number) is not None and number in last.written:
            return
        self._commit(
            replace(
                last,
                done={**last.done, number: ()},
                begun={key: each for key, each in last.begun.items() if key != number},
                written={**last.written, number: result},
            )
        )

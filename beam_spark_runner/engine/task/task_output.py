"""Passes batches from the thread that runs a task's bundles to the one from which Spark pulls."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.engine.task.interruptible import Interruptible

_QUEUE_BATCHES = 4
_SMALL_BYTES = 1 << 16
_END = object()


class EmitterWatch(Protocol):
    """Watches the emitting thread, from the reading one."""

    check_every_s: float

    def check(self) -> None:
        """Check the emitting thread: no batch has come for ``check_every_s``.

        The reader raises what this raises.
        """
        ...

    def note_batch(self) -> None:
        """Note that a batch has come."""
        ...


class TaskOutput:
    """A bounded queue of batches, so that gigabytes of output are never in memory together.

    Small batches are joined, in their order: each batch costs Spark and both threads as much as
    some hundred rows.

    Threads: one calls ``emit``, ``finish`` and ``fail``; another one ``read`` and ``stop_reading``;
    any ``abandon``.

    Attributes:
        users: interrupts user code in the emitting thread, but not inside ``emit``.
        emitted_bytes: the size of all emitted batches, as Arrow holds them.
    """

    def __init__(self) -> None:
        self.users = Interruptible(AbandonedError)
        self.emitted_bytes = 0
        self._queue: queue.Queue[Any] = queue.Queue(_QUEUE_BATCHES)
        self._small: list[pa.RecordBatch] = []
        self._small_bytes = 0
        self._abandoned = threading.Event()
        self._has_reader_left = threading.Event()  # the reader

    @property
    def is_abandoned(self) -> bool:
        """Whether the output is no longer needed."""
        return self._abandoned.is_set()

    def emit(self, batch: pa.RecordBatch) -> None:
        """Pass a batch to the reader; wait while the queue is full.

        Raises:
            AbandonedError: the output is no longer needed.
        """
        self.emitted_bytes += batch.nbytes
        with self.users.sheltered():
            if batch.nbytes < _SMALL_BYTES:
                self._small.append(batch)
                self._small_bytes += batch.nbytes
                if self._small_bytes >= _SMALL_BYTES:
                    self._flush()
            else:
                self._flush()
                self._put(batch)
        if self._abandoned.is_set():
            raise AbandonedError

    def finish(self) -> None:
        """Mark the end of the output.

        Raises:
            AbandonedError: the output is no longer needed.
        """
        self._flush()
        self._put(_END)

    def fail(self, error: BaseException) -> bool:
        """Have the reader raise an error; return False if it has left."""
        while not self._has_reader_left.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(error, timeout=1.0)
                return True
        return False

    def read(self, watch: EmitterWatch) -> Iterator[pa.RecordBatch]:
        """Yield the batches until the end.

        Raises:
            BaseException: the error passed to ``fail``, or what ``watch`` raises.
        """
        while (item := self._next(watch)) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self, watch: EmitterWatch) -> Any:
        while True:
            try:
                item = self._queue.get(timeout=watch.check_every_s)
            except queue.Empty:
                watch.check()
                continue
            watch.note_batch()
            return item

    def abandon(self) -> None:
        """Have the emitting thread end soon: the output is no longer needed."""
        self._abandoned.set()
        self.users.interrupt()

    def stop_reading(self) -> None:
        """End reading. Does not interrupt user code in the emitting thread."""
        self._abandoned.set()
        self._has_reader_left.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def wait_us(self, duration_us: int) -> None:
        """Wait for so many microseconds.

        Raises:
            AbandonedError: the output is no longer needed.
        """
        if self._abandoned.wait(duration_us / 1e6):
            raise AbandonedError

    def _flush(self) -> None:
        if not self._small:
            return
        (batch,) = pa.Table.from_batches(self._small).combine_chunks().to_batches() or [
            self._small[0]
        ]
        self._small, self._small_bytes = [], 0
        self._put(batch)

    def _put(self, item: Any) -> None:
        while True:
            if self._abandoned.is_set():
                raise AbandonedError
            try:
                self._queue.put(item, timeout=1.0)
            except queue.Full:
                continue
            return

"""Batches on their way from the thread that runs a task's bundles to Spark, which pulls them."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from beam_spark_runner.spark.task.interruptible import Interruptible
from beam_spark_runner.spark.task.open_stage import AbandonedError

_QUEUE_BATCHES = 4
_SMALL_BYTES = 1 << 16
_END = object()


class Watch(Protocol):
    """Watches the thread that emits, from the one that reads."""

    look_every_s: float

    def look(self) -> None:
        """Nothing has come for so long. What this raises, the reader raises."""
        ...

    def goes_on(self) -> None:
        """Something has come."""
        ...


class TaskOutput:
    """A bounded queue of batches: an element that expands to gigabytes never stands in memory.

    Small batches are put together, in their order: each that Spark gets costs it, and both
    threads, as much as some hundred rows.

    Threads: one emits, ends and fails; another one reads; any abandons.

    Attributes:
        users: the emitting thread's code; it is not interrupted inside ``emit``.
        emitted_bytes: as Arrow has them.
    """

    def __init__(self) -> None:
        self.users = Interruptible(AbandonedError)
        self.emitted_bytes = 0
        self._queue: queue.Queue[Any] = queue.Queue(_QUEUE_BATCHES)
        self._small: list[pa.RecordBatch] = []
        self._small_bytes = 0
        self._abandoned = threading.Event()
        self._has_left = threading.Event()  # whoever reads

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody wants the output any more."""
        return self._abandoned.is_set()

    def emit(self, batch: pa.RecordBatch) -> None:
        """Pass a batch on; wait while the queue is full.

        Raises:
            AbandonedError: nobody wants the output any more.
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

    def end(self) -> None:
        """All is emitted.

        Raises:
            AbandonedError: nobody wants the output any more.
        """
        self._flush()
        self._put(_END)

    def fail(self, error: BaseException) -> bool:
        """Have the reader raise an error. False: it has left."""
        while not self._has_left.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(error, timeout=1.0)
                return True
        return False

    def read(self, watch: Watch) -> Iterator[pa.RecordBatch]:
        """Yield the batches until the end.

        Raises:
            BaseException: see ``fail``; or what ``watch`` raises.
        """
        while (item := self._next(watch)) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _next(self, watch: Watch) -> Any:
        while True:
            try:
                item = self._queue.get(timeout=watch.look_every_s)
            except queue.Empty:
                watch.look()
                continue
            watch.goes_on()
            return item

    def abandon(self) -> None:
        """Have whoever emits end soon: nobody wants the output any more."""
        self._abandoned.set()
        self.users.interrupt()

    def leave(self) -> None:
        """Nobody reads any more. Does not interrupt the other thread's code."""
        self._abandoned.set()
        self._has_left.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    def wait_us(self, duration_us: int) -> None:
        """Wait for so many microseconds.

        Raises:
            AbandonedError: nobody wants the output any more.
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

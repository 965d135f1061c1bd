"""What a task has read, and for how long it has worked, for people."""

import time

from beam_spark_runner._generated.reports_pb2 import TaskWork
from beam_spark_runner.core.rendering import valid_text
from beam_spark_runner.engine.rows.cursor import LargestKey, RowCursor
from beam_spark_runner.scheduling.task_work import is_large

_MAX_KEY_LENGTH = 200


class WorkOfTask:
    """The work of one task. Threads: one calls, any may call ``largest`` and ``proto``.

    Args:
        level: The number of its level among all levels of the plan.
        partition: The number of its partition.
    """

    def __init__(self, level: int, partition: int) -> None:
        self._level, self._partition = level, partition
        self._cursor: RowCursor | None = None
        self._began_s: float | None = None
        self._ended_s: float | None = None
        self._largest: tuple[str, str, int] | None = None

    def begin(self, cursor: RowCursor) -> None:
        """Note that the task reads its rows from a cursor, which has its first row."""
        self._cursor, self._began_s = cursor, time.monotonic()

    def largest(self) -> LargestKey | None:
        """Return the key with the most rows. None: it has no great part of them, or is named."""
        cursor = self._cursor
        if cursor is None or self._largest is not None:
            return None
        return cursor.largest if is_large(cursor.largest.rows, cursor.rows) else None

    def end(self, step: str, key_text: str) -> None:
        """Note that all rows are read, and which key has most of them; "": no step groups by it."""
        if (largest := self.largest()) is not None and key_text:
            self._largest = step, key_text, largest.rows

    def finish(self) -> None:
        """Note that the task has processed everything."""
        self._ended_s = time.monotonic()

    def proto(self, step: str = "", key_text: str = "") -> TaskWork:
        """Return the work so far.

        Args:
            step: The name of the step that groups by the key of ``largest``.
            key_text: This key as text. "": there is none.
        """
        work = TaskWork(level=self._level, partition=self._partition)
        cursor, began_s = self._cursor, self._began_s
        if cursor is None or began_s is None:
            return work
        ended_s = self._ended_s
        work.is_done = ended_s is not None
        work.spent_us = round(((ended_s or time.monotonic()) - began_s) * 1e6)
        work.rows = cursor.rows
        named = self._largest
        if named is None and key_text:
            named = step, key_text, cursor.largest.rows
        if named is not None:
            work.largest.step, text, work.largest.rows = named
            work.largest.text = valid_text(text, _MAX_KEY_LENGTH)
        return work

"""The progress line of a pipeline on a terminal.

It only reads Spark's own counts, in a thread of its own, whose errors never
disturb the pipeline.
"""

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from beam_spark_runner.spark import pyspark_internals

_FIRST_AFTER_S = 1.0
"""A quicker pipeline needs no line, so that its own output stays undisturbed."""
_EVERY_S = 0.5
_EVERY_S_IN_A_LOG = 10.0
_JOIN_S = 2.0
_START_AND_CLEAR = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Counts:
    """The progress of the Spark jobs that run now."""

    stages_done: int
    stages: int
    tasks_done: int
    tasks: int
    exchanged: int | None = None  # rows written to exchanges since the start. None: not known


class TaskCounter(Protocol):
    """The source of the counts."""

    def look(self) -> Counts | None:
        """Return the counts, or None where no job runs or nothing is known."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


def watch(spark: Any, tag: str, *, is_connect: bool) -> TaskCounter | None:
    """Return the watch of Spark jobs under ``tag``, or None if this Spark cannot have one."""
    if not is_connect:
        return _ClassicWatch(spark.sparkContext, tag)
    if hasattr(spark, "registerProgressHandler"):  # 4.0
        return _ConnectWatch(spark)
    return None


class _ClassicWatch:
    """Reads the driver's status store, which exists with and without Spark's UI."""

    def __init__(self, context: Any, tag: str) -> None:
        scala = pyspark_internals.scala_context(context)
        self._tracker, self._store, self._tag = scala.statusTracker(), scala.statusStore(), tag
        self._exchanged: dict[int, int] = {}

    def look(self) -> Counts | None:
        done = stages = tasks_done = tasks = 0
        for job in self._tracker.getJobIdsForTag(self._tag):
            info = self._tracker.getJobInfo(job)
            if info.isEmpty() or info.get().status().name() != "RUNNING":
                continue
            for id_ in info.get().stageIds():
                stage = self._store.lastStageAttempt(id_)
                stages += 1
                tasks += stage.numTasks()
                if stage.status().name() in ("COMPLETE", "SKIPPED"):
                    done += 1
                    tasks_done += stage.numTasks()
                else:
                    tasks_done += stage.numCompleteTasks()
                self._exchanged[id_] = stage.shuffleWriteRecords()
        if not stages:
            return None
        return Counts(done, stages, tasks_done, tasks, sum(self._exchanged.values()))

    def close(self) -> None:
        pass


class _ConnectWatch:
    """The server sends the counts along with the answer that the client waits for."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._counts: Counts | None = None
        spark.registerProgressHandler(self._handle)

    def _handle(
        self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: Any, done: bool
    ) -> None:
        seen = list(stages or ())
        if done or not seen:
            self._counts = None
            return
        self._counts = Counts(
            sum(1 for stage in seen if stage.done),
            len(seen),
            sum(stage.num_completed_tasks for stage in seen),
            sum(stage.num_tasks for stage in seen),
        )

    def look(self) -> Counts | None:
        return self._counts

    def close(self) -> None:
        self._spark.removeProgressHandler(self._handle)


class ProgressLine:
    """Draws the line on a terminal until it is closed, and clears it then.

    If ``out`` is no terminal, it writes a plain line now and then, if something has changed.

    Threads: one thread calls ``enter`` and ``close``. No method raises.
    """

    def __init__(
        self,
        seen_by: TaskCounter | None,
        segments: int,
        out: TextIO,
        clock: Callable[[], float] = time.monotonic,
        residuals: Callable[[], int] = lambda: 0,  # that are known to wait
        elements: Callable[[], int] = lambda: 0,  # that are known to be processed
        text: Callable[[], str] | None = None,  # of a streaming pipeline, in place of all that
    ) -> None:
        self._watch = seen_by
        self._segments = segments
        self._out = out
        self._clock = clock
        self._residuals = residuals
        self._elements = elements
        self._text = text
        self._began = clock()
        self._segment = 0
        self._exchanged: int | None = None
        self._is_terminal = False
        with contextlib.suppress(Exception):
            self._is_terminal = out.isatty()
        self._last = ""
        self._is_drawn = False
        self._closed = threading.Event()
        self._lock = threading.Lock()  # nothing is drawn once ``close`` has cleared the line
        self._thread = threading.Thread(target=self._run, name="beam-progress", daemon=True)

    def start(self) -> None:
        """Begin to draw, after a moment."""
        self._thread.start()

    def enter(self, segment: int) -> None:
        """Say which segment runs now; the first is 1."""
        self._segment = segment

    def close(self) -> None:
        """Clear the line. Nothing is drawn after that."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)  # it may be in a call to a JVM that is stuck
        with self._lock:
            if self._is_drawn and self._is_terminal:
                self._write(_START_AND_CLEAR)
            self._is_drawn = False
        with contextlib.suppress(Exception):
            if self._watch is not None:
                self._watch.close()

    def _run(self) -> None:
        every_s = _EVERY_S if self._is_terminal else _EVERY_S_IN_A_LOG
        wait_s = min(_FIRST_AFTER_S, every_s)
        while not self._closed.wait(wait_s):
            wait_s = every_s
            counts = None
            with contextlib.suppress(Exception):  # Spark may be stopping, or gone
                counts = self._watch.look() if self._watch is not None else None
            with self._lock:
                if not self._closed.is_set():
                    self._draw(counts)

    def _draw(self, counts: Counts | None) -> None:
        text = self.text(counts)
        if not self._is_terminal:
            if text != self._last:
                self._write(f"{text} · {self._elapsed()}\n")
            self._last = text
            return
        width = shutil.get_terminal_size().columns - 1
        # The cursor goes back to the start, so that what anybody else prints replaces the line.
        self._write(f"{_START_AND_CLEAR}{f'{text} · {self._elapsed()}'[:width]}\r")
        self._is_drawn = True

    def text(self, counts: Counts | None) -> str:
        """Return the line without the time."""
        if self._text is not None:
            return self._text()
        parts = [f"segment {self._segment} of {self._segments}" if self._segment else "starting"]
        if counts is not None:
            parts.append(f"Spark stages {counts.stages_done}/{counts.stages}")
            parts.append(f"tasks {counts.tasks_done}/{counts.tasks}")
            if counts.exchanged is not None:
                self._exchanged = counts.exchanged
        if elements := self._elements():
            parts.append(f"{elements:,} elements processed")
        if self._exchanged:
            parts.append(f"{self._exchanged:,} elements exchanged")
        if waiting := self._residuals():
            parts.append(f"{waiting:,} deferred")
        return " · ".join(parts)

    def _elapsed(self) -> str:
        seconds = int(self._clock() - self._began)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):  # closed, or the terminal is gone
            self._out.write(text)
            self._out.flush()

"""Begins a segment: one task runs its levels one after another, while they take little time.

A Spark stage costs a tenth of a second, whatever it does, and the pipelines of tests and notebooks
have many levels for few elements. So the first Spark job of a segment has a single task if the
driver has all that the segment reads. It exchanges the rows between two levels in its memory. When
its time is over, or a level emits many rows, it stops. The rows of its Spark job are then those
that the level at which it stops has emitted, and those that this level has not read. The next Spark
job runs the segment from there on, with as many tasks as there are partitions.

On Spark, all rows of the task come to the driver. If a single element makes too many for that, the
task gives up, and other tasks process the whole segment.
"""

import contextlib
import math
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner._generated.backchannel_pb2 import OfferedRows
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import mark_to_keep
from beam_spark_runner.engine.rows.sorted_runs import places_in_order
from beam_spark_runner.engine.task.slices import Slices
from beam_spark_runner.engine.task.task import LevelTask, at_home
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.scheduling.attempts import IN_THIS_JOB

MAX_BYTES = 4 << 20
"""How much a level may emit before it reads no further rows: all of it is in memory."""
MAX_RETURNED_BYTES = 32 << 20
"""How much the task may emit: all of it comes to the driver."""
PATIENCE_S = 0.1
"""How much longer an element may take before other tasks process what the level has not read."""


class TooManyRowsError(Exception):
    """The task has given up, since it has emitted more rows than it may."""


def begin_segment(
    programs: Sequence[LevelProgram], budget_s: float, attempt_number: int = 0
) -> bytes | None:
    """Run a task that begins a segment whose rows are in its first program.

    Args:
        programs: the programs of all levels of the segment.
        budget_s: the time after which the task stops.
        attempt_number: how many attempts Spark has made before.

    Returns:
        All rows and reports, see ``schema.coded_batches``; None: it has given up.
    """
    first = programs[0]
    with at_home(first):
        task = FirstTask(programs, budget_s, attempt_number, max_returned_bytes=MAX_RETURNED_BYTES)
        assert first.batch is not None
        try:
            rows = list(task.run(schema.decoded_batches(first.batch.driver_rows)))
        except TooManyRowsError:
            return None
        return schema.coded_batches(map(schema.conformed, rows))


class FirstTask:
    """One attempt at the only task of a segment's first Spark job.

    Args:
        programs: the programs of all levels of the segment.
        budget_s: the time for each level after which it reads no further rows, since all other
            cores may be idle. It is about what a Spark stage costs, which a level needs otherwise.
        attempt_number: how many attempts Spark has made before.
        max_bytes: see ``MAX_BYTES``.
        max_returned_bytes: see ``MAX_RETURNED_BYTES``.
    """

    def __init__(
        self,
        programs: Sequence[LevelProgram],
        budget_s: float,
        attempt_number: int = 0,
        max_bytes: int = MAX_BYTES,
        max_returned_bytes: float = math.inf,
    ) -> None:
        self._programs = programs
        self._attempt_number = attempt_number
        self._budget_s = budget_s
        self._ends_s = time.monotonic()
        self._opening_s = _no_time
        self._max_bytes = max_bytes
        self._max_returned_bytes = max_returned_bytes

    def run(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of the last level that ran, with one mark, and all reports.

        Raises:
            TooManyRowsError: what it has yielded is worth nothing.
        """
        size = 0
        with contextlib.closing(self._run(batches)) as emitted:
            for batch in emitted:
                size += batch.nbytes
                if size > self._max_returned_bytes:
                    raise TooManyRowsError
                yield batch

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        emitted: Iterable[pa.RecordBatch] = batches
        for program in self._programs:
            level = _Level(program, emitted, self, self._attempt_number)
            self._ends_s += self._budget_s
            self._opening_s = level.opening_s
            began_s = time.monotonic()
            yield from level.run()
            self._opening_s, opened_s = _no_time, level.opening_s()
            # A single restriction has the time that it would have in any task.
            self._ends_s += time.monotonic() - began_s if level.is_splittable else opened_s
            if level.is_last:
                return
            emitted = level.emitted

    @property
    def max_bytes(self) -> int:
        """See ``MAX_BYTES``."""
        return self._max_bytes

    def remaining_s(self) -> float:
        """Return the time that is left, in seconds. It does not pass while stages are opened."""
        return self._ends_s + self._opening_s() - time.monotonic()

    def is_time_over(self) -> bool:
        """Whether the time is over."""
        return self.remaining_s() <= 0


class _Level:
    """Runs one level.

    Attributes:
        emitted: its rows, with its mark and all reports so far, unless it is the last one.
        is_last: whether it is the last level that runs; known after ``run``.
    """

    def __init__(
        self,
        program: LevelProgram,
        batches: Iterable[pa.RecordBatch],
        task: FirstTask,
        attempt_number: int,
    ) -> None:
        self._task = task
        self._program = program
        # Other rows stay in their order, as users expect it of few elements.
        inputs = [stage.input for stage in program.stages]
        rows = pa.Table.from_batches(map(schema.conformed, batches), schema.ARROW_SCHEMA)
        if any(edge.is_grouped for edge in inputs):
            is_ordered = any(edge.is_ordered for edge in inputs)
            rows = rows.take(pa.array(places_in_order(rows, is_ordered=is_ordered)))
        self._slices = Slices(rows, task.remaining_s)
        self._level_task = LevelTask(program, 0, attempt_number, self._slices.count_unread)
        self.is_last = not program.has_next
        self.emitted: list[pa.RecordBatch] = []
        self._bytes = 0
        self._mark: reports_pb2.AttemptMark | None = None

    @property
    def is_splittable(self) -> bool:
        """Whether a splittable DoFn is among the stages."""
        return any(stage.description.is_splittable for stage in self._program.stages)

    def opening_s(self) -> float:
        """See ``LevelTask``."""
        return self._level_task.opening_s()

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task, if this is the last level that runs."""
        has_ended = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(has_ended,), name="beam-first-task", daemon=True
        )
        watch.start()
        try:
            yield from self._run()
        finally:
            has_ended.set()
            watch.join()

    def _watch(self, has_ended: threading.Event) -> None:
        """Offer what the level will not read to the driver, while an element takes long.

        Restrictions are not offered: a single one is processed, and several are left at once.
        """
        while not has_ended.wait(max(self._task.remaining_s(), 0.0) + PATIENCE_S):
            if not self._task.is_time_over():
                continue
            if not self.is_splittable:
                self._offer_unread()
            return

    def _offer_unread(self) -> None:
        here = np.array([int(stage.input.dest) for stage in self._program.stages], np.int32)
        rows = [
            schema.rows_to(here, schema.conformed(batch)) for batch in self._slices.stop_and_rest()
        ]
        if any(len(batch) for batch in rows):
            offer = OfferedRows(
                attempt=self._level_task.attempt,
                run=self._program.run,
                level=self._program.level,
                rows=schema.coded_batches(rows),
            )
            worker.offer_rows(self._program.job_id, offer)

    def _run(self) -> Iterator[pa.RecordBatch]:
        with contextlib.closing(self._level_task.run(iter(self._slices))) as batches:
            for batch in batches:
                self._bytes += batch.nbytes
                self.emitted.append(self._without_marks(batch))
                if self._bytes > self._task.max_bytes:
                    self._slices.stop()
                    self.is_last = True
                if self.is_last:
                    yield from self._take_emitted()
        # A restriction may take long: the time of its level does not count.
        if self._slices.count_unread() or (self._task.is_time_over() and not self.is_splittable):
            self.is_last = True
        if self.is_last:
            yield from self._take_emitted()
            yield from self._slices.stop_and_rest()
            yield from self._kept_marks(run=self._program.run)
        else:
            self.emitted += self._kept_marks(run=IN_THIS_JOB)

    def _take_emitted(self) -> list[pa.RecordBatch]:
        taken, self.emitted = self.emitted, []
        return taken

    def _without_marks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remove the task's mark, which it sends to each partition, and remember it."""
        is_mark = schema.dests_of(batch) == schema.CONTROL
        if not is_mark.any():
            return batch
        coded = batch.filter(pa.array(is_mark)).column("value")[0].as_py()
        self._mark = reports_pb2.AttemptMark.FromString(coded)
        if self._mark.failed or self._mark.left_residuals:
            self.is_last = True
        return batch.filter(pa.array(~is_mark))

    def _kept_marks(self, run: int) -> list[pa.RecordBatch]:
        if self._mark is None:
            return []
        mark = reports_pb2.AttemptMark(attempt=self._mark.attempt, run=run)
        return [mark_to_keep(mark)]


def _no_time() -> float:
    return 0.0

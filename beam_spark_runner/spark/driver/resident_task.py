"""Runs epochs in Spark tasks that stay for many of them."""

import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.task.epoch_requests import Request
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.pyspark_internals import activate_session
from beam_spark_runner.spark.worker.task_functions import serving_function

MAX_BYTES = 64 << 20
"""How much a level may emit for the next one."""
_LOOK_EVERY_S = 0.2


class ResidentTask:
    """A Spark job with one task, which runs all tasks of an epoch, for one epoch after another.

    It ends when it is idle, or has lasted for some time; the next epoch starts another one.

    Threads: the one that makes it; and its own, which runs the Spark jobs.

    Args:
        spark: the session, on a local master that repeats no tasks.
        scope: names the Spark jobs.
        check_cancelled: raises if the pipeline is to end.
    """

    def __init__(
        self,
        spark: SparkSession,
        scope: Callable[[], AbstractContextManager[None]],
        check_cancelled: Callable[[], None],
    ) -> None:
        self._spark, self._scope, self._check_cancelled = spark, scope, check_cancelled
        self._threads = ThreadPoolExecutor(
            1, "beam-epochs", initializer=activate_session, initargs=(spark,)
        )
        self._job: Future[None] | None = None
        self._task: Connection | None = None
        self._known_programs: list[Sequence[LevelProgram]] = []  # to this task

    def run(
        self, programs: Sequence[LevelProgram], rows: Sequence[pa.RecordBatch]
    ) -> list[Report] | None:
        """Run an epoch.

        Args:
            programs: the programs of the levels; those of an earlier call are known by identity.
            rows: the rows that each task of the first level reads.

        Returns:
            The reports of all tasks. None: the rows between two levels do not fit in memory.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        text = schema.text_of_batches(rows)
        while True:
            task = self._task or self._start_task()
            try:
                task.send(self._request(programs, text))
                while not task.poll(_LOOK_EVERY_S):
                    self._check_cancelled()
                response = task.recv()
            except (EOFError, OSError):
                # It has failed, or has ended before it got the request.
                self._end_task()
                continue
            return None if response is None else reports_of(response)

    def close(self) -> None:
        """End the task and the thread."""
        if self._task is not None:
            self._task.close()
        self._threads.shutdown()

    def _request(self, programs: Sequence[LevelProgram], rows: str) -> Request:
        for number, known in enumerate(self._known_programs):
            if known is programs:
                return Request(number, None, rows, MAX_BYTES)
        self._known_programs.append(programs)
        return Request(len(self._known_programs) - 1, programs, rows, MAX_BYTES)

    def _start_task(self) -> Connection:
        """Start a task, and return the connection to it.

        The folder of the socket is removed at once: it does not stay if this process is killed.
        """
        self._known_programs = []
        with (
            tempfile.TemporaryDirectory(prefix="beam-") as folder,  # only this user may enter it
            socket.socket(socket.AF_UNIX) as listener,
        ):
            address = str(Path(folder, "driver"))
            listener.bind(address)
            listener.listen(1)
            listener.settimeout(_LOOK_EVERY_S)
            job = self._job = self._threads.submit(self._serve, address)
            while True:
                try:
                    accepted, _ = listener.accept()
                    break
                except TimeoutError:
                    self._check_cancelled()
                    if job.done():
                        job.result()
                        raise InvariantError("a Spark task ended without an epoch") from None
        accepted.setblocking(True)
        self._task = Connection(accepted.detach())
        return self._task

    def _end_task(self) -> None:
        """Wait for the end of a task that has closed its connection; raise its error."""
        assert self._task is not None
        assert self._job is not None
        self._task.close()
        self._task = None
        self._job.result()

    def _serve(self, address: str) -> None:
        """Run a Spark job with one task; in its own thread.

        Args:
            address: the path of the socket at which this process listens.
        """
        with self._scope():
            row = self._spark.range(0, 1, 1, 1)
            row.mapInArrow(serving_function(address), frames.SCHEMA).collect()

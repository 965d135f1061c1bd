"""Lets Spark tasks stay for several small jobs: epochs, and the beginnings of segments."""

import socket
import tempfile
import threading
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
from beam_spark_runner.engine.task.resident_requests import (
    EpochRequest,
    Request,
    Response,
    SegmentRequest,
)
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.spark.driver.one_task import collect_values
from beam_spark_runner.spark.pyspark_internals import activate_session
from beam_spark_runner.spark.socket_folders import socket_folder
from beam_spark_runner.spark.worker.task_functions import serving_function

MAX_BYTES = 64 << 20
"""How much a level may emit for the next one."""
IDLE_S = 0.2
MAX_S = 2.0
"""How long a task waits for the next request, and how long it lasts: others need its slot, too."""
_LOOK_EVERY_S = 0.2


class ResidentTask:
    """A Spark job with one task, which answers one request after another.

    It ends when it is idle, or has lasted for some time; the next request starts another one.

    Threads: the one that makes it, of which others may call ``release``; and its own, which runs
    the Spark jobs.

    Args:
        spark: the session, on a local master that repeats no tasks.
        scope: makes the Spark jobs of the calling thread part of the pipeline.
        check_cancelled: raises if the pipeline is to end.
        title: of the Spark jobs.
    """

    def __init__(
        self,
        spark: SparkSession,
        scope: Callable[[str], AbstractContextManager[None]],
        check_cancelled: Callable[[], None],
        title: str,
    ) -> None:
        self._spark, self._scope, self._check_cancelled = spark, scope, check_cancelled
        self._title = title
        self._threads = ThreadPoolExecutor(
            1, "beam-resident", initializer=activate_session, initargs=(spark,)
        )
        self._is_busy = threading.Lock()
        self._job: Future[None] | None = None
        self._task: Connection | None = None
        self._known_programs: list[Sequence[LevelProgram]] = []  # to this task

    def run_epoch(
        self, programs: Sequence[LevelProgram], rows: Sequence[pa.RecordBatch]
    ) -> list[Report] | None:
        """Run all tasks of an epoch.

        Args:
            programs: the programs of the levels; those of an earlier call are known by identity.
            rows: the rows that each task of the first level reads.

        Returns:
            The reports of all tasks. None: the rows between two levels do not fit in memory.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        text = schema.text_of_batches(rows)
        response = self._response_to(lambda: self._epoch(programs, text))
        assert not isinstance(response, bytes)
        return None if response is None else reports_of(response)

    def begin_segment(self, programs: Sequence[LevelProgram], budget_s: float) -> bytes | None:
        """Begin a segment, see ``first_task.begin_segment``.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        response = self._response_to(lambda: SegmentRequest(programs, budget_s))
        assert not isinstance(response, list)
        return response

    def release(self) -> None:
        """End the task, unless it has a request: another Spark job needs its slot."""
        if self._is_busy.acquire(blocking=False):
            try:
                if self._task is not None:
                    self._task.close()
                    self._task = None
            finally:
                self._is_busy.release()

    def close(self) -> None:
        """End the task and the thread."""
        if self._task is not None:
            self._task.close()
        self._threads.shutdown()

    def _response_to(self, request: Callable[[], Request]) -> Response:
        """Return the response to a request, which is made once the task is known."""
        with self._is_busy:
            while True:
                task = self._task or self._start_task()
                try:
                    task.send(request())
                    while not task.poll(_LOOK_EVERY_S):
                        self._check_cancelled()
                    response: Response = task.recv()
                except (EOFError, OSError):
                    # It has failed, or has ended before it got the request.
                    self._end_task()
                    continue
                return response

    def _epoch(self, programs: Sequence[LevelProgram], rows: str) -> EpochRequest:
        for number, known in enumerate(self._known_programs):
            if known is programs:
                return EpochRequest(number, None, rows, MAX_BYTES)
        self._known_programs.append(programs)
        return EpochRequest(len(self._known_programs) - 1, programs, rows, MAX_BYTES)

    def _start_task(self) -> Connection:
        """Start a task, and return the connection to it.

        The folder of the socket is removed at once: it does not stay if this process is killed.
        """
        self._known_programs = []
        with (
            # Only this user may enter it.
            tempfile.TemporaryDirectory(prefix="beam-", dir=socket_folder()) as folder,
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
                        raise InvariantError("a Spark task ended without a request") from None
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
        with self._scope(self._title):
            serve = serving_function(address, IDLE_S, MAX_S)
            collect_values(self._spark, serve, self._title)

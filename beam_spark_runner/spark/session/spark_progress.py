"""The progress of Spark jobs, from Spark's own counts."""

from collections.abc import Iterable
from typing import Any, Protocol

from beam_spark_runner.observing.batch_line import Counts
from beam_spark_runner.spark import pyspark_internals


class TaskCounter(Protocol):
    """The source of the counts."""

    def counts(self) -> Counts | None:
        """Return the counts, or None where no job runs or nothing is known."""
        ...

    def count_jobs(self) -> int | None:
        """Return the number of Spark jobs so far, or None where it is not known."""
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
    """Reads the driver's status store, which exists with and without the Spark UI."""

    def __init__(self, context: Any, tag: str) -> None:
        scala = pyspark_internals.scala_context(context)
        self._tracker, self._store, self._tag = scala.statusTracker(), scala.statusStore(), tag

    def counts(self) -> Counts | None:
        done = stages = tasks_done = tasks = 0
        read: int | None = None  # by the first stage that is not complete,
        to_read = written = 0  # of what the previous stage has written
        for job in self._tracker.getJobIdsForTag(self._tag):
            info = self._tracker.getJobInfo(job)
            if info.isEmpty() or info.get().status().name() != "RUNNING":
                continue
            for id_ in sorted(info.get().stageIds()):
                stage = self._store.lastStageAttempt(id_)
                stages += 1
                tasks += stage.numTasks()
                if stage.status().name() in ("COMPLETE", "SKIPPED"):
                    done += 1
                    tasks_done += stage.numTasks()
                    written = stage.shuffleWriteRecords()
                else:
                    tasks_done += stage.numCompleteTasks()
                    if read is None:
                        read, to_read = stage.shuffleReadRecords(), written
        if not stages:
            return None
        return Counts(done, stages, tasks_done, tasks, read if to_read else None, to_read or None)

    def count_jobs(self) -> int | None:
        return len(self._tracker.getJobIdsForTag(self._tag))

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
        all_stages = list(stages or ())
        if done or not all_stages:
            self._counts = None
            return
        self._counts = Counts(
            sum(1 for stage in all_stages if stage.done),
            len(all_stages),
            sum(stage.num_completed_tasks for stage in all_stages),
            sum(stage.num_tasks for stage in all_stages),
        )

    def counts(self) -> Counts | None:
        return self._counts

    def count_jobs(self) -> int | None:
        return None

    def close(self) -> None:
        self._spark.removeProgressHandler(self._handle)

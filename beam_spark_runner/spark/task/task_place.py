"""The place of a task among the tasks of its Spark job."""

from pyspark import TaskContext


def place_of(context: TaskContext | None) -> tuple[int, int]:
    """Return the partition of a Spark task, and how many attempts Spark has made before it."""
    if context is None:
        return 0, 0
    return context.partitionId(), context.attemptNumber()

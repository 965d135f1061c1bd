"""The executors that a Spark application has lost, from the status store of its driver."""

from typing import Any

from py4j.protocol import Py4JError

from beam_spark_runner.observing.troubles import LostExecutor, is_loss
from beam_spark_runner.spark import pyspark_internals


class LostExecutors:
    """Looks for executors that were lost. Threads: one at a time.

    Args:
        context: The SparkContext. None: a client of Spark Connect, which cannot ask.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._dead = 0
        self._lost: tuple[LostExecutor, ...] = ()

    def look(self) -> tuple[LostExecutor, ...]:
        """Return those that Spark remembers: the latest hundred."""
        if self._context is None:
            return ()
        try:
            store = pyspark_internals.scala_context(self._context).statusStore()
            everything = store.executorList(False)
            dead = everything.size() - store.executorList(True).size()
            if dead != self._dead:  # each executor takes several calls of the JVM
                self._lost = tuple(_lost_in(everything))
                self._dead = dead
        except (Py4JError, OSError, AttributeError):
            return self._lost  # Spark is stopping or gone, and the context has no JVM's object
        return self._lost


def _lost_in(summaries: Any) -> list[LostExecutor]:
    lost = []
    for position in range(summaries.size()):
        summary = summaries.apply(position)
        if summary.isActive() or summary.removeTime().isEmpty():
            continue
        reason = summary.removeReason()
        text = "" if reason.isEmpty() else str(reason.get()).strip()
        if is_loss(text):
            at_s = summary.removeTime().get().getTime() / 1e3
            lost.append(LostExecutor(executor=str(summary.id()), at_s=at_s, reason=text))
    return lost

"""Moves rows between levels: Spark partitions, sorts and spills them by the columns named here."""

from pyspark.sql import DataFrame

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.spark.driver.anchor import Anchor


def exchange(
    frame: DataFrame,
    partitions: int,
    readers: tuple[Edge, ...],
    *,
    reads_marks_first: bool = False,
    anchor: Anchor | None = None,
) -> DataFrame:
    """Bring rows to the partitions of their routes, sorted as the readers need it.

    Always by a column: ``repartition(n)`` alone sorts all rows first, to be
    deterministic. Rows are sorted only where a reader groups, or where control rows must be
    read before all others.
    """
    exchanged = frame.repartition(partitions, "route")
    if anchor is not None:
        exchanged = anchor.anchor_readers(exchanged)
    if any(edge.is_ordered for edge in readers):
        return exchanged.sortWithinPartitions("route", "order")
    if reads_marks_first or any(edge.is_grouped for edge in readers):
        return exchanged.sortWithinPartitions("route")
    return exchanged

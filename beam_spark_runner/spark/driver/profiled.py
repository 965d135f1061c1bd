"""Python functions over frames, whose tasks may need other resources than Spark's default."""

from collections.abc import Callable
from typing import TypeAlias

from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from beam_spark_runner.graph.resources import Resources
from beam_spark_runner.spark.worker.task_functions import ForMapInArrow

ProfileFor: TypeAlias = Callable[[Resources], ResourceProfile | None]


def no_profile(_: Resources) -> ResourceProfile | None:
    """Return None: Spark's own profile."""
    return None


def map_in_arrow(
    frame: DataFrame,
    function: ForMapInArrow,
    schema: StructType | str,
    profile: ResourceProfile | None,
) -> DataFrame:
    """Return a frame whose rows a function makes, in tasks with a resource profile."""
    if profile is None:  # Spark 3 has no such argument
        return frame.mapInArrow(function, schema)
    return frame.mapInArrow(function, schema, profile=profile)

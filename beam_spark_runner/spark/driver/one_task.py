"""Runs a function in a single task, whose values come to the driver."""

import contextlib
import threading
from collections.abc import Iterator

from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from beam_spark_runner.spark.driver.frame_rows import one_row
from beam_spark_runner.spark.driver.profiled import map_in_arrow
from beam_spark_runner.spark.session.conf import (
    WORKER_PYTHON,
    conf_of_context,
    get_conf,
    is_connect,
)
from beam_spark_runner.spark.worker.task_functions import ForMapInArrow, values_function

_VARIABLES = {
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "SPARK_SIMPLIFIED_TRACEBACK",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "SPARK_HIDE_TRACEBACK",
}
"""Settings of sessions for the workers of plans, and the variables that workers know them by."""
_LOCK = threading.Lock()


def collect_values(
    spark: SparkSession,
    function: ForMapInArrow,
    title: str,
    profile: ResourceProfile | None = None,
) -> list[bytes]:
    """Run a function, and return its values.

    Args:
        spark: the session.
        function: its input means nothing; its only column is binary.
        title: shown in the Spark UI.
        profile: the resource profile of the task; None: Spark's own.

    Raises:
        Exception: what Spark raises; see ``spark_errors``.
    """
    if profile is not None or not _may_use_rdd(spark):
        frame = map_in_arrow(one_row(spark), function, "value binary", profile)
        return [bytes(value) for (value,) in frame.collect()]
    rdd = spark.sparkContext.parallelize([0], 1).mapPartitions(values_function(function))
    with _workers_of_plans(spark):
        rdd.setName(title)  # which is the first that the JVM learns of the function
    return rdd.collect()


@contextlib.contextmanager
def _workers_of_plans(spark: SparkSession) -> Iterator[None]:
    """Let the functions of RDDs run in the workers that run those of plans.

    Spark distinguishes workers by their interpreter and their variables.
    """
    context = spark.sparkContext
    variables = {
        variable: "1" for key, variable in _VARIABLES.items() if get_conf(spark, key) == "true"
    }
    with _LOCK:
        previous = context.pythonExec, context.environment
        context.pythonExec = get_conf(spark, WORKER_PYTHON) or context.pythonExec
        context.environment = {**context.environment, **variables}
        try:
            yield
        finally:
            context.pythonExec, context.environment = previous


def _may_use_rdd(spark: SparkSession) -> bool:
    """Whether an RDD can run the function, which takes half of the time of a plan.

    Clients of Spark Connect have none. Elsewhere, it depends on a setting of the application, which
    that of the session does not replace, whether its workers print their stack when they crash.
    """
    if is_connect(spark):
        return False
    return conf_of_context(spark, "spark.python.worker.faulthandler.enabled") == "true"

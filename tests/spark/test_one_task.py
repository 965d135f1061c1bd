"""Functions in a single task, whose values come to the driver."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from beam_spark_runner.spark.driver import one_task
from beam_spark_runner.spark.driver.one_task import collect_values

pytestmark = pytest.mark.spark


def parent(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The id of the process that has started the worker, and many bytes."""
    for _ in batches:
        pass
    for value in (str(os.getppid()).encode(), bytes(3 << 20)):
        yield pa.RecordBatch.from_pydict({"value": pa.array([value], pa.binary())})


def test_an_rdd_and_a_plan_share_their_workers(
    spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = spark_session.sparkContext
    before = context.pythonExec, dict(context.environment)
    by_rdd = collect_values(spark_session, parent, "first")
    assert (context.pythonExec, context.environment) == before
    monkeypatch.setattr(one_task, "_may_use_rdd", lambda spark: False)
    assert collect_values(spark_session, parent, "first") == by_rdd
    assert by_rdd[1] == bytes(3 << 20)


def test_the_workers_of_a_session_with_a_separate_python(spark_session: Any) -> None:
    key = "spark.sql.execution.pyspark.python"
    before = spark_session.conf.get(key, None)
    spark_session.conf.set(key, "/no/such/python")
    try:
        with pytest.raises(Exception, match="/no/such/python"):
            collect_values(spark_session, parent, "first")
    finally:
        spark_session.conf.unset(key) if before is None else spark_session.conf.set(key, before)
